package answer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/check"
	"github.com/holdfast-go/holdfast/check/answer"
	"github.com/holdfast-go/holdfast/driver"
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
		{&holdfast.HeldError{}, check.ErrHeld},
		{&holdfast.WaitError{Cause: context.Canceled}, check.ErrWait},
		{&holdfast.LostError{}, check.ErrLost},
		{holdfast.ErrClosed, check.ErrClosed},
		{store(driver.Unavailable), check.ErrUnavailable},
		{store(driver.NotDone), check.ErrNotDone},
		{store(driver.Unknown), check.ErrUnknown},
		{store(driver.Refused), check.ErrRefused},
		{holdfast.ErrReleased, check.ErrOther},
	} {
		if got := answer.Class(tt.err); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.err, got, tt.want)
		}
	}
}
