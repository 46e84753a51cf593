package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// wantMaxHold checks that err has the *LostError of a MaxHold.
func wantMaxHold(t *testing.T, err error) {
	t.Helper()
	lost, _ := errors.AsType[*holdfast.LostError](err)
	if lost == nil || lost.Reason != holdfast.LossMaxHold {
		t.Errorf("error %v, want one with the reason %q", err, holdfast.LossMaxHold)
	}
}

// TestF24_F134_MaxHoldWaitsForFunctions covers F24 and F134. It checks for each
// kind of lock that MaxHold ends the context at once, and lets the next client in
// when the function returns, or a third of the TTL, at most 5 s, later.
func TestF24_F134_MaxHoldWaitsForFunctions(t *testing.T) {
	for _, x := range []struct{ ttl, cleanUp, next time.Duration }{
		{30 * time.Second, 4 * time.Second, 4 * time.Second},
		{30 * time.Second, time.Hour, 5 * time.Second},
		{6 * time.Second, time.Hour, 2 * time.Second},
		{time.Hour, 4 * time.Second, 4 * time.Second},
	} {
		eachKind(t, func(t *testing.T, k, rival lockKind, c, other *holdfast.Client) {
			start := time.Now()
			done := make(chan error, 1)
			go func() {
				done <- k.do(c, bg, func(ctx context.Context) error {
					<-ctx.Done()
					if took := time.Since(start); took != time.Minute {
						t.Errorf("the context ended after %v", took)
					}
					wantMaxHold(t, context.Cause(ctx))
					time.Sleep(x.cleanUp)
					return nil
				}, holdfast.WithMaxHold(time.Minute), holdfast.WithTTL(x.ttl))
			}()
			synctest.Wait()
			entered := enterAfter(t, rival, other)
			if got := entered().Sub(start) - time.Minute; got != x.next {
				t.Errorf("TTL %v: the next client held %v after MaxHold, want %v", x.ttl, got, x.next)
			}
			wantMaxHold(t, <-done)
		})
	}
}

// TestF24_MaxHoldIsReportedOnce covers F24. It checks that a lock that is lost
// after its MaxHold, while its function still runs, is reported once, and that
// the next client waits for no bound then.
func TestF24_MaxHoldIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var told losses
		c, other := client(t, memlock.New(s), told.observer()), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a", holdfast.WithMaxHold(time.Minute)).Lock(bg))
		l, err := other.Inspect(bg, "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		wantMaxHold(t, h.Err())
		wantErr(t, other.Break(bg, "a", l.Holders[0].ID), nil)
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
		wantMaxHold(t, h.Err())
		wantMaxHold(t, h.Unlock())
		time.Sleep(ttl)
		if lost, ended := told.counts(); lost != 1 || ended != 1 {
			t.Errorf("%d losses and %d ends told", lost, ended)
		}
	})
}

// TestF24_UnlockAfterMaxHold covers F24. It checks that Unlock, and Detach, after
// MaxHold release the lock before its bound, and return the loss.
func TestF24_UnlockAfterMaxHold(t *testing.T) {
	for name, end := range map[string]func(*holdfast.Hold) error{"Unlock": (*holdfast.Hold).Unlock, "Detach": (*holdfast.Hold).Detach} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
				h := must(t)(c.Mutex("a", holdfast.WithMaxHold(time.Minute), holdfast.WithOwner("job")).Lock(bg))
				time.Sleep(time.Minute + time.Second)
				_, err := other.Mutex("a").TryLock(bg)
				wantErr(t, err, holdfast.ErrHeld)
				_, err = c.Mutex("a").Lock(h.Context())
				wantMaxHold(t, err)
				wantMaxHold(t, end(h))
				wantMaxHold(t, h.Unlock())
				unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
				time.Sleep(time.Minute) // the timer of the bound does nothing
				wantMaxHold(t, h.Err())
			})
		})
	}
}

// TestF134_MaxHoldAndClosing covers F134. It checks that Shutdown waits for a
// hold that its MaxHold has ended, at most until its bound, and that Close
// releases such a bare hold at once.
func TestF134_MaxHoldAndClosing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, unlocks := range []bool{true, false} {
			s := memlock.NewStore()
			c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
			h := must(t)(c.Mutex("a", holdfast.WithMaxHold(time.Minute)).Lock(bg))
			time.Sleep(time.Minute + time.Second)
			want := 4 * time.Second
			if unlocks {
				want = time.Second
				time.AfterFunc(want, func() { _ = h.Unlock() })
			}
			start := time.Now()
			wantErr(t, c.Shutdown(bg), nil)
			if took := time.Since(start); took != want {
				t.Errorf("Shutdown took %v, want %v", took, want)
			}
			unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
			wantMaxHold(t, h.Err())
		}
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a", holdfast.WithMaxHold(time.Minute)).Lock(bg))
		time.Sleep(time.Minute + time.Second)
		start := time.Now()
		wantErr(t, c.Close(), nil)
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v", took)
		}
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
		wantMaxHold(t, h.Unlock())
	})
}

// TestF24_NestedMaxHoldIsNoLossOfTheRoot covers F24. It checks that HoldDone tells a
// release after Unlock of the outer hold, though the MaxHold of a nested one had
// ended that, whether Unlock or the bound releases the lock; and a loss of the
// lock as such.
func TestF24_NestedMaxHoldIsNoLossOfTheRoot(t *testing.T) {
	for name, x := range map[string]struct {
		unlock, bounded bool
		gone            bool
		told            error
	}{
		"Unlock":                 {unlock: true},
		"bound":                  {},
		"Unlock of a lost lock":  {unlock: true, gone: true, told: holdfast.ErrLost},
		"Unlock after its bound": {unlock: true, bounded: true, told: holdfast.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				var told []error
				c := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{
					HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) { told = append(told, e.Err) },
				}))
				var limits []holdfast.Option
				if x.bounded {
					limits = append(limits, holdfast.WithMaxHold(30*time.Second))
				}
				outer := must(t)(c.Mutex("a", limits...).Lock(bg))
				inner := must(t)(c.Mutex("a", holdfast.WithMaxHold(time.Minute)).Lock(outer.Context()))
				if x.bounded {
					time.Sleep(31 * time.Second)
					wantMaxHold(t, outer.Unlock())
				} else {
					unlock(t, outer)
					time.Sleep(time.Minute + time.Second)
				}
				wantMaxHold(t, inner.Err())
				if x.gone {
					s.LoseData()
				}
				if x.unlock {
					wantMaxHold(t, inner.Unlock())
				} else {
					time.Sleep(ttl)
				}
				synctest.Wait()
				if len(told) != 1 || !errors.Is(told[0], x.told) {
					t.Errorf("told %v, want %v", told, x.told)
				}
				unlock(t, must(t)(client(t, memlock.New(s)).Mutex("a").TryLock(bg)))
			})
		})
	}
}
