package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestMultiInsideAHold checks that a Multi nests in a hold of one of its names.
// Its context leads to the nested hold, not to the outer one.
func TestMultiInsideAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		outer := must(t)(c.Mutex("b").Lock(bg))
		ctx, cancel := context.WithTimeout(outer.Context(), time.Second)
		defer cancel()
		mh, err := c.Multi([]string{"a", "b"}).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		deeper, err := c.Multi([]string{"b", "a"}).TryLock(mh.Context())
		if err != nil {
			t.Fatalf("a Multi does not nest in itself: %v", err)
		}
		if deeper.Token("a") != mh.Token("a") || deeper.Token("b") != outer.Token() {
			t.Error("nested tokens differ")
		}
		for _, unlock := range []func() error{deeper.Unlock, mh.Unlock, outer.Unlock} {
			if err := unlock(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestMulti(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s))
		m := a.Multi([]string{"z", "x", "y", "x"})
		mh, err := m.Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []string{"x", "y", "z"} {
			if mh.Token(n) == 0 || holdfast.Token(mh.Context(), n) != mh.Token(n) {
				t.Errorf("token of %s", n)
			}
			unlock(t, must(t)(a.Mutex(n).Lock(mh.Context()))) // nests
			_, err := b.Mutex(n).TryLock(bg)
			wantErr(t, err, holdfast.ErrHeld)
		}
		_, err = b.Multi([]string{"w", "y"}).TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		if n := tickets(t, a, "w"); n != 0 {
			t.Error("a part of a failed TryLock stays held")
		}
		short, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err = b.Multi([]string{"w", "y"}).Lock(short)
		wantErr(t, err, context.DeadlineExceeded)
		settle()
		if n := tickets(t, a, "w"); n != 0 {
			t.Error("a part of a timed-out Lock stays held")
		}
		if err := mh.Unlock(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantErr(t, context.Cause(mh.Context()), holdfast.ErrReleased)

		// The loss of one is the loss of all.
		lost := errors.New("not lost")
		err = m.Do(bg, func(ctx context.Context) error {
			l, _ := b.Inspect(bg, "y")
			if err := b.Break(bg, "y", l.Holders[0].ID); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			lost = context.Cause(ctx)
			return nil
		})
		wantErr(t, err, holdfast.ErrLost)
		wantErr(t, lost, holdfast.ErrLost)
		if n := tickets(t, a, "x") + tickets(t, a, "z"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// TestF65_MultiInOppositeOrders covers F65. It checks that Multis with opposite
// orders never wait in a circle.
func TestF65_MultiInOppositeOrders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		names := []string{"a", "b", "c", "d"}
		n := 0
		var wg sync.WaitGroup
		for i := range 8 {
			c := client(t, memlock.New(s))
			order := slices.Clone(names)
			if i%2 == 0 {
				slices.Reverse(order)
			}
			wg.Go(func() {
				for range 50 {
					if err := c.Multi(order[i%3:]).Do(bg, func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				}
				if err := c.Multi(order).Do(bg, func(context.Context) error { n++; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n != 8 {
			t.Errorf("%d of 8", n)
		}
	})
}

// TestF112_SeveralLocksReturnWhenTheirContextEnds checks that several locks
// return as promptly as one when their context ends, though the store is silent
// and the first lock is already held.
func TestF112_SeveralLocksReturnWhenTheirContextEnds(t *testing.T) {
	for name, lock := range map[string]func(*holdfast.Multi, context.Context) (*holdfast.MultiHold, error){
		"Lock": (*holdfast.Multi).Lock, "TryLock": (*holdfast.Multi).TryLock,
		"Do": func(m *holdfast.Multi, ctx context.Context) (*holdfast.MultiHold, error) {
			return nil, m.Do(ctx, func(context.Context) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				var told losses
				d := hook(s)
				c, other := client(t, d, told.observer()), client(t, memlock.New(s))
				h := must(t)(other.Mutex("b").Lock(bg))
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				d.join = func(ctx context.Context, tk *driver.Ticket, next joinFunc) (driver.Status, error) {
					if tk.Name == "b" { // the first is held: the store falls silent
						d.cut()
						if name == "TryLock" {
							<-ctx.Done()
							return driver.Status{}, ctx.Err()
						}
					}
					return next()
				}
				var ended time.Time
				time.AfterFunc(time.Second, func() { ended = time.Now(); cancel() })
				mh, err := lock(c.Multi([]string{"a", "b"}), ctx)
				if mh != nil || !errors.Is(err, context.Canceled) {
					t.Errorf("%v, %v", mh, err)
				}
				if took := time.Since(ended); took > 100*time.Millisecond {
					t.Errorf("it returned %v after its context had ended", took)
				}
				d.heal()
				time.Sleep(ttl)
				synctest.Wait()
				if n := tickets(t, other, "a"); n != 0 {
					t.Errorf("%d tickets stay", n)
				}
				if lost, ended := told.counts(); lost != 0 || ended != 1 {
					t.Errorf("%d losses and %d ends were told", lost, ended)
				}
				unlock(t, h)
			})
		})
	}
}

// TestF112_SeveralTriedLeaveNothingHeld checks that a TryLock of several that
// finds one held has given back the others when it returns.
func TestF112_SeveralTriedLeaveNothingHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(other.Mutex("c").Lock(bg))
		d.leave = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
			time.Sleep(time.Second)
			return next()
		}
		_, err := c.Multi([]string{"a", "b", "c"}).TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		if a, b := tickets(t, other, "a"), tickets(t, other, "b"); a+b != 0 {
			t.Errorf("%d and %d tickets stay", a, b)
		}
		unlock(t, h)
	})
}

// TestF112_CloseWhileSeveralAreGivenBack checks that Close ends several locks
// that wait, and waits until their holds are given back.
func TestF112_CloseWhileSeveralAreGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(other.Mutex("b").Lock(bg))
		d.leave = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
			time.Sleep(time.Second)
			return next()
		}
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		_, err := c.Multi([]string{"a", "b"}).Lock(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if n := tickets(t, other, "a"); n != 0 {
			t.Errorf("%d tickets stay after Close", n)
		}
		unlock(t, h)
	})
}

// TestMultiEndsWhenANameIsLost takes a name away from a Multi that waits for another one:
// its Lock ends at once, and gives the place up. So does one whose MaxHold is over.
func TestMultiEndsWhenANameIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s))
		held := must(t)(b.Mutex("y").Lock(bg))
		time.AfterFunc(time.Minute, func() {
			info, err := b.Inspect(bg, "x")
			if err != nil || len(info.Holders) != 1 {
				t.Errorf("%v, %v", info.Holders, err)
				return
			}
			if err := b.Break(bg, "x", info.Holders[0].ID); err != nil {
				t.Error(err)
			}
		})
		for after, opts := range map[time.Duration][]holdfast.Option{time.Minute: nil, 20 * time.Second: {holdfast.WithMaxHold(20 * time.Second)}} {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(bg, time.Hour)
			_, err := a.Multi([]string{"x", "y"}, opts...).Lock(ctx)
			wantErr(t, err, holdfast.ErrLost)
			if took := time.Since(begun); took > after+time.Second {
				t.Errorf("MaxHold %d: %v after %v", len(opts), err, took)
			}
			cancel()
			synctest.Wait()
			if info, err := b.Inspect(bg, "y"); err != nil || len(info.Waiters) != 0 {
				t.Errorf("%d wait, %v", len(info.Waiters), err)
			}
		}
		unlock(t, held)
	})
}
