package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestErrorTexts checks what the text of each error names, and what each error matches
// and wraps.
func TestErrorTexts(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	who := holdfast.Holder{Host: "web1", PID: 7, Since: at}
	custom := errors.New("the request was withdrawn")
	seven := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, x := range []struct {
		err      error
		text     string
		matches  []error
		opposite []error
	}{
		{&holdfast.HeldError{Name: "n"}, `holdfast: "n" is held by another`, []error{holdfast.ErrHeld}, []error{holdfast.ErrMaxWait, holdfast.ErrLost}},
		{&holdfast.HeldError{Name: "n", Holder: who}, `holdfast: "n" is held by pid 7 on web1 since 2026-01-02T03:04:05Z`, nil, nil},
		{&holdfast.LostError{Name: "n", Reason: holdfast.LossGone, Token: 9}, `holdfast: lost "n": gone from the store (token 9)`, []error{holdfast.ErrLost}, []error{holdfast.ErrHeld, holdfast.ErrReleased}},
		{&holdfast.WaitError{Name: "n", Cause: custom, Waited: 1500 * time.Millisecond}, `holdfast: wait for "n" ended after 1.5s: the request was withdrawn`, []error{custom}, []error{holdfast.ErrHeld}},
		{&holdfast.WaitError{Name: "n", Cause: context.DeadlineExceeded, Holder: who}, `holdfast: wait for "n" ended after 0s, held by pid 7 on web1 since 2026-01-02T03:04:05Z: context deadline exceeded`, []error{context.DeadlineExceeded}, []error{holdfast.ErrHeld}},
		{&holdfast.WaitError{Name: "n", Cause: holdfast.ErrMaxWait}, `holdfast: wait for "n" ended after 0s: MaxWait is over`, []error{holdfast.ErrMaxWait, holdfast.ErrHeld}, nil},
		{&holdfast.StoreError{Op: "acquire", Name: "n", Err: driver.Errorf(driver.Refused, "no: %w", custom)}, `holdfast: acquire "n": refused: no: the request was withdrawn`, []error{custom}, []error{holdfast.ErrLost}},
		{&holdfast.StoreError{Op: "ping", Err: driver.Errorf(driver.Unavailable, "no")}, `holdfast: ping: store unavailable: no`, nil, nil},
		{&holdfast.ShutdownError{Held: seven, Cause: custom}, `5 of 7`, []error{custom}, nil},
	} {
		got := x.err.Error()
		if x.text == "5 of 7" {
			for i, name := range seven {
				if strings.Contains(got, fmt.Sprintf("%q", name)) != (i < 5) {
					t.Errorf("%q names %q: it has at most the first five", got, name)
				}
			}
			if !strings.Contains(got, custom.Error()) {
				t.Errorf("%q lacks its cause", got)
			}
		} else if got != x.text {
			t.Errorf("text %q, want %q", got, x.text)
		}
		for _, e := range x.matches {
			if !errors.Is(x.err, e) {
				t.Errorf("%q does not match %q", got, e)
			}
		}
		for _, e := range x.opposite {
			if errors.Is(x.err, e) {
				t.Errorf("%q matches %q", got, e)
			}
		}
	}
}

// TestWaitErrorFields checks the fields of the error of a wait that a context with a
// cause of its own ended, with a holder that the store knows and behind a goroutine.
func TestWaitErrorFields(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s), holdfast.WithNote("of the other"))
		h := must(t)(other.Mutex("a").Lock(bg))
		custom := errors.New("the request was withdrawn")
		ctx, cancel := context.WithCancelCause(bg)
		time.AfterFunc(1500*time.Millisecond, func() { cancel(custom) })
		_, err := c.Mutex("a").Lock(ctx)
		failed, ok := errors.AsType[*holdfast.WaitError](err)
		if !ok || failed.Name != "a" || failed.Cause != custom || failed.Waited != 1500*time.Millisecond || failed.Holder.Note != "of the other" {
			t.Errorf("%+v", err)
		}
		unlock(t, h)
	})
}

// TestStoreErrorOfEachCall checks the error of each call at a store that refuses: the
// operation, the name, and the driver's error with its class.
func TestStoreErrorOfEachCall(t *testing.T) {
	for _, class := range []driver.Class{driver.Refused, driver.Unknown, driver.Unavailable} {
		bubble(t, func(t *testing.T) {
			cause := driver.Errorf(class, "no")
			c := client(t, &failing{Driver: memlock.New(memlock.NewStore()), err: cause}, holdfast.WithPrefix("p/"))
			check := func(op, name string, err error) {
				t.Helper()
				failed, ok := errors.AsType[*holdfast.StoreError](err)
				switch {
				case !ok || failed.Op != op || failed.Name != name || !errors.Is(failed.Unwrap(), cause):
					t.Errorf("%s: %+v", op, err)
				case failed.Refused() != (class == driver.Refused), failed.Unknown() != (class == driver.Unknown), failed.Unavailable() != (class == driver.Unavailable):
					t.Errorf("%v: refused %v, unknown %v, unavailable %v", class, failed.Refused(), failed.Unknown(), failed.Unavailable())
				case failed.RetryAfter() != 0:
					t.Errorf("%v is refused for %v", class, failed.RetryAfter())
				}
			}
			_, err := c.Inspect(bg, "a")
			check("inspect", "a", err)
			check("break", "a", c.Break(bg, "a", "id"))
			check("ping", "", c.Ping(bg))
			_, err = c.LastDone(bg, "a")
			check("last done", "a", err)
			_, err = c.Identity(bg)
			check("identity", "", err)
			_, err = c.Check(bg)
			check("check", "", err)
			n := 0
			for name, err := range c.Names(bg, "") {
				if n++; n == 1 && (name != "one" || err != nil) {
					t.Errorf("%q, %v", name, err)
				} else if n == 2 {
					check("list names", "", err)
				}
			}
			if n != 2 {
				t.Errorf("%d names, want one and the error, which ends the sequence", n)
			}
			if class == driver.Refused { // Lock would wait for the others
				_, err = c.Mutex("a").Lock(bg)
				check("acquire", "a", err)
				_, err = c.Once(bg, "a", time.Now(), func(context.Context) error { return nil })
				check("once", "a", err)
			}
		})
	}
}

// failing is a store all of whose requests fail. It has one name.
type failing struct {
	*memlock.Driver
	err error
}

func (f *failing) Join(context.Context, *driver.Ticket, bool) (driver.Status, error) {
	return driver.Status{}, f.err
}
func (f *failing) Inspect(context.Context, string) (driver.Queue, error) {
	return driver.Queue{}, f.err
}
func (f *failing) Break(context.Context, string, string) error        { return f.err }
func (f *failing) Mark(context.Context, string) (driver.Mark, error)  { return driver.Mark{}, f.err }
func (f *failing) SetMark(context.Context, string, driver.Mark) error { return f.err }
func (f *failing) Identity(context.Context) (string, error)           { return "", f.err }
func (f *failing) Check(context.Context) ([]driver.Finding, error)    { return nil, f.err }
func (f *failing) Names(_ context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		_ = yield(prefix+"one", nil) && yield("", f.err) && yield(prefix+"never", nil)
	}
}

// TestCallsAfterCloseHaveErrClosed checks that the calls that look into a store end
// with ErrClosed once the client has closed, and that its numbers are 0 then.
func TestCallsAfterCloseHaveErrClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		must(t)(c.Mutex("a").Lock(bg))
		if s := c.Stats(); s.Held != 1 {
			t.Errorf("%+v", s)
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		_, inspect := c.Inspect(bg, "a")
		_, check := c.Check(bg)
		_, last := c.LastDone(bg, "a")
		_, identity := c.Identity(bg)
		var names []error
		for _, err := range c.Names(bg, "") {
			names = append(names, err)
		}
		for what, err := range map[string]error{"Inspect": inspect, "Check": check, "LastDone": last,
			"Names": errors.Join(names...), "Break": c.Break(bg, "a", "id"), "Ping": c.Ping(bg), "Identity": identity} {
			if !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if s := c.Stats(); s != (holdfast.Stats{}) {
			t.Errorf("%+v after Close", s)
		}
		if err := c.Shutdown(bg); err != nil {
			t.Errorf("Shutdown after Close: %v", err)
		}
	})
}

// TestStoresWithoutAnAbility checks that a call for which the store lacks the ability
// matches ErrUnsupported, and sends nothing.
func TestStoresWithoutAnAbility(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, plain{d})
		_, lock := c.RWMutex("a").Lock(bg)
		_, read := c.RWMutex("a").RLock(bg)
		_, acquire := c.Semaphore("a", 2).Acquire(bg, 1)
		_, owner := c.Mutex("a", holdfast.WithOwner("o")).Lock(bg)
		_, once := c.Once(bg, "a", time.Now(), func(context.Context) error { return nil })
		_, last := c.LastDone(bg, "a")
		_, identity := c.Identity(bg)
		_, check := c.Check(bg)
		for what, err := range map[string]error{"Lock": lock, "RLock": read, "Acquire": acquire, "WithOwner": owner,
			"Once": once, "LastDone": last, "Identity": identity, "Check": check} {
			if !errors.Is(err, holdfast.ErrUnsupported) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if d.joins != 0 {
			t.Errorf("%d requests", d.joins)
		}
		if got := c.Traits(); got.Shared || got.MinTTL != d.Driver.Traits().MinTTL {
			t.Errorf("%+v", got)
		}
	})
}

// plain is a store with mutexes alone, whose driver has no methods beyond a Driver's.
type plain struct{ driver.Driver }

func (p plain) Traits() driver.Traits {
	t := p.Driver.Traits()
	t.Shared, t.Owner, t.Marks = false, false, false
	return t
}

// TestShutdownErrorNamesEachHold checks that a ShutdownError has a name for each hold
// that is left, sorted, and its cause.
func TestShutdownErrorNamesEachHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		var holds []*holdfast.Hold
		for _, name := range []string{"z", "a", "m"} {
			holds = append(holds, must(t)(c.Mutex(name).Lock(bg)))
		}
		for range 2 {
			holds = append(holds, must(t)(c.Semaphore("s", 3).Acquire(bg, 1)))
		}
		custom := errors.New("enough")
		ctx, cancel := context.WithCancelCause(bg)
		cancel(custom)
		err := c.Shutdown(ctx)
		failed, ok := errors.AsType[*holdfast.ShutdownError](err)
		if !ok || !slices.Equal(failed.Held, []string{"a", "m", "s", "s", "z"}) || failed.Cause != custom || !errors.Is(err, custom) {
			t.Errorf("%+v", err)
		}
		for _, h := range holds {
			if h.Err() != nil {
				t.Errorf("%s: %v", h.Name(), h.Err())
			}
			unlock(t, h)
		}
	})
}
