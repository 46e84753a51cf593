package answer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/answer"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/memlock"
)

func ExampleClass() {
	ctx := context.Background()
	s := memlock.NewStore()
	one, err := holdfast.New(memlock.New(s))
	if err != nil {
		fmt.Println(err)
	}
	defer one.Close()
	other, err := holdfast.New(memlock.New(s))
	if err != nil {
		fmt.Println(err)
	}
	defer other.Close()
	_, err = one.Mutex("n").TryLock(ctx)
	fmt.Printf("%q\n", answer.Class(err))
	_, err = other.Mutex("n").TryLock(ctx)
	fmt.Printf("%q\n", answer.Class(err))
	// Output:
	// ""
	// "held"
}

func TestClass(t *testing.T) {
	store := func(c driver.Class) error {
		return fmt.Errorf("a call: %w", &holdfast.StoreError{Op: "acquire", Name: "n", Err: driver.Errorf(c, "why")})
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{&holdfast.HeldError{}, checker.ErrHeld},
		{&holdfast.WaitError{Cause: context.Canceled}, checker.ErrWait},
		{&holdfast.LostError{}, checker.ErrLost},
		{holdfast.ErrClosed, checker.ErrClosed},
		{store(driver.Unavailable), checker.ErrUnavailable},
		{store(driver.NotDone), checker.ErrNotDone},
		{store(driver.Unknown), checker.ErrUnknown},
		{store(driver.Refused), checker.ErrRefused},
		{holdfast.ErrReleased, checker.ErrOther},
	} {
		if got := answer.Class(tt.err); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.err, got, tt.want)
		}
	}
}
