package driver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClassOf(t *testing.T) {
	plain := errors.New("plain")
	for _, c := range []struct {
		err  error
		want driver.Class
	}{
		{nil, driver.Unknown},
		{plain, driver.Unknown},
		{context.DeadlineExceeded, driver.Unknown},
		{driver.Errorf(driver.NotDone, "x"), driver.NotDone},
		{driver.Errorf(driver.Unavailable, "x: %w", plain), driver.Unavailable},
		{fmt.Errorf("outside: %w", driver.Errorf(driver.Refused, "x")), driver.Refused},
		// The outermost class counts.
		{&driver.Error{Class: driver.Unknown, Err: driver.Errorf(driver.NotDone, "x")}, driver.Unknown},
		{&driver.Error{Class: driver.NotDone, Err: driver.ErrClosed}, driver.NotDone},
		{driver.ErrClosed, driver.Refused},
		{driver.ErrUpgrade, driver.Refused},
		{fmt.Errorf("x: %w", driver.ErrNoTicket), driver.Refused},
		{fmt.Errorf("x: %w", &driver.LimitError{Name: "n", Have: 1, Want: 2}), driver.Refused},
		{errors.Join(plain, driver.Errorf(driver.Unavailable, "x")), driver.Unavailable},
	} {
		if got := driver.ClassOf(c.err); got != c.want {
			t.Errorf("class of %v is %v, want %v", c.err, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	plain := errors.New("plain")
	if err := driver.Wrap(driver.Refused, nil); err != nil {
		t.Errorf("nil becomes %v", err)
	}
	err := driver.Wrap(driver.Unavailable, plain)
	if driver.ClassOf(err) != driver.Unavailable || !errors.Is(err, plain) || err.Error() != "store unavailable: plain" {
		t.Errorf("error is %v", err)
	}
	// A class that somebody knew is kept.
	if again := driver.Wrap(driver.Refused, fmt.Errorf("x: %w", err)); driver.ClassOf(again) != driver.Unavailable {
		t.Errorf("error is %v", again)
	}
	if err := driver.Errorf(driver.NotDone, "x: %w", plain); !errors.Is(err, plain) || err.Error() != "not done: x: plain" {
		t.Errorf("error is %v", err)
	}
}

func TestBefore(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	if err := driver.Before(ctx); err != nil {
		t.Errorf("error is %v", err)
	}
	cause := errors.New("cause")
	cancel(cause)
	if err := driver.Before(ctx); !errors.Is(err, cause) || driver.ClassOf(err) != driver.NotDone {
		t.Errorf("error is %v", err)
	}
}

// TestConstantsPrintAsWords checks the texts of classes, states and outcomes.
func TestConstantsPrintAsWords(t *testing.T) {
	for want, got := range map[string]fmt.Stringer{
		"not done": driver.NotDone, "outcome unknown": driver.Unknown, "store unavailable": driver.Unavailable, "refused": driver.Refused,
		"waiting": driver.Waiting, "held": driver.Held, "gone": driver.Gone, "unknown": driver.State(0),
		"ok": driver.OK, "warning": driver.Warning, "problem": driver.Problem,
	} {
		if got.String() != want {
			t.Errorf("%#v is %q, want %q", got, got, want)
		}
	}
	if s := (&driver.LimitError{Name: "n", Have: 3, Want: 1}).Error(); s != "line has limit 3, ticket wants 1" {
		t.Error(s)
	}
}

func TestNotReady(t *testing.T) {
	err := fmt.Errorf("outside: %w", driver.NotReady(3*time.Second, "restart guard"))
	if after, ok := driver.IsNotReady(err); driver.ClassOf(err) != driver.Unavailable || !ok || after != 3*time.Second {
		t.Errorf("%v: class %v, retry after %v", err, driver.ClassOf(err), after)
	}
	if after, ok := driver.IsNotReady(driver.NotReady(-time.Second, "x")); !ok || after != 0 {
		t.Errorf("a time that has passed is %v, %v, want 0, true", after, ok)
	}
	for _, err := range []error{nil, errors.New("plain"), driver.Errorf(driver.Unavailable, "gone")} {
		if _, ok := driver.IsNotReady(err); ok {
			t.Errorf("%v counts as not ready", err)
		}
	}
}
