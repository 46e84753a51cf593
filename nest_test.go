package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF59_NestedThroughTheContext checks the basic case of nesting: a() holds
// and calls b(), which locks the same name.
func TestF59_NestedThroughTheContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		m := c.Mutex("a")
		depth := 0
		var visit func(ctx context.Context) error
		visit = func(ctx context.Context) error {
			if depth++; depth == 5 {
				return nil
			}
			token := holdfast.Token(ctx, "a")
			if err := m.Do(ctx, visit); err != nil {
				return err
			}
			if token != 0 && holdfast.Token(ctx, "a") != token {
				t.Error("the token changed")
			}
			if n := tickets(t, other, "a"); token != 0 && n != 1 {
				t.Errorf("%d tickets while an outer hold is held", n)
			}
			return ctx.Err()
		}
		if err := visit(bg); err != nil {
			t.Fatal(err)
		}
		if d.joins != 1 || d.leaves != 1 {
			t.Errorf("%d Joins and %d Leaves for nested holds", d.joins, d.leaves)
		}
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
	})
}

func TestF59_LastUnlockReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		m := c.Mutex("a")
		outer := must(t)(m.Lock(bg))
		inner := must(t)(m.Lock(outer.Context()))
		if inner.Token() != outer.Token() {
			t.Error("a nested hold has another token")
		}
		unlock(t, outer) // out of order
		wantErr(t, outer.Err(), holdfast.ErrReleased)
		if inner.Err() != nil {
			t.Fatalf("inner ended with outer's Unlock: %v", inner.Err())
		}
		_, err := other.Mutex("a").TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		_, err = m.Lock(outer.Context())
		wantErr(t, err, holdfast.ErrReleased)
		unlock(t, inner)
		unlock(t, inner) // one more Unlock than locks
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
	})
}

// TestF59_OthersWait checks that a context that comes from no hold does not
// nest, in whatever goroutine.
func TestF59_OthersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		m := c.Mutex("a")
		h := must(t)(m.Lock(bg))
		_, err := m.TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err = m.Lock(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		// Another name or another client does not nest either.
		unlock(t, must(t)(c.Mutex("b").Lock(h.Context())))
		unlock(t, h)
	})
}

// TestNestsOfOneContextExcludeEachOther checks that goroutines that share a
// hold's context are serialised.
func TestNestsOfOneContextExcludeEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		m := c.Mutex("a")
		inside, n := 0, 0
		err := m.Do(bg, func(ctx context.Context) error {
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					err := m.Do(ctx, func(ctx context.Context) error {
						if inside++; inside != 1 {
							t.Errorf("%d inside", inside)
						}
						time.Sleep(time.Second)
						n++
						inside--
						return m.Do(ctx, func(context.Context) error { return nil }) // deeper nesting is free
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			h := must(t)(m.Lock(ctx))
			_, err := m.TryLock(ctx)
			wantErr(t, err, holdfast.ErrHeld)
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err = m.Lock(short)
			wantErr(t, err, context.DeadlineExceeded)
			unlock(t, h)
			return nil
		})
		if err != nil || n != 10 {
			t.Fatalf("%v, %d runs", err, n)
		}
	})
}

func TestNestedHoldEndsWithTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		m := c.Mutex("a")
		outer := must(t)(m.Lock(bg))
		inner := must(t)(m.Lock(outer.Context()))
		waiting := make(chan error)
		go func() { _, err := m.Lock(outer.Context()); waiting <- err }()
		synctest.Wait()
		d.cut()
		<-inner.Context().Done()
		wantErr(t, inner.Err(), holdfast.ErrLost)
		wantErr(t, <-waiting, holdfast.ErrLost)
		_, err := m.Lock(inner.Context())
		wantErr(t, err, holdfast.ErrLost)
		wantErr(t, inner.Unlock(), holdfast.ErrLost)
		wantErr(t, outer.Unlock(), holdfast.ErrLost)
		d.heal()
	})
}

func TestUpgradeIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		rw := c.RWMutex("rw")
		err := rw.RDo(bg, func(ctx context.Context) error {
			_, err := rw.Lock(ctx)
			wantErr(t, err, holdfast.ErrUpgrade)
			return rw.RDo(ctx, func(ctx context.Context) error { // readers nest side by side
				unlock(t, must(t)(rw.RLock(ctx)))
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := rw.Do(bg, func(ctx context.Context) error {
			return rw.RDo(ctx, func(ctx context.Context) error { return ctx.Err() })
		}); err != nil {
			t.Fatalf("a reader inside its own write lock: %v", err)
		}
		sem := c.Semaphore("s", 4)
		if err := sem.Do(bg, 2, func(ctx context.Context) error {
			_, err := sem.Acquire(ctx, 3)
			wantErr(t, err, holdfast.ErrUpgrade)
			return sem.Do(ctx, 2, func(context.Context) error { return nil })
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOwnerHoldsTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b, c := client(t, memlock.New(s)), client(t, memlock.New(s)), client(t, memlock.New(s))
		job := holdfast.WithOwner("job")
		h1 := must(t)(a.Mutex("m", job).Lock(bg))
		var waited bool
		next := make(chan *holdfast.Hold)
		go func() { next <- must(t)(c.Mutex("m", holdfast.WithOwner("other")).Lock(bg)); waited = true }()
		synctest.Wait()
		h2 := must(t)(b.Mutex("m", job).Lock(bg))    // overtakes, because the owner holds
		h3 := must(t)(a.Mutex("m", job).TryLock(bg)) // so does a TryLock in the first process
		if h1.Token() != h2.Token() || h1.Token() != h3.Token() {
			t.Errorf("tokens %d, %d, %d of one owner", h1.Token(), h2.Token(), h3.Token())
		}
		unlock(t, h1)
		unlock(t, h3)
		synctest.Wait()
		if waited || h2.Err() != nil {
			t.Fatal("the owner's hold ended with its first Unlock")
		}
		unlock(t, h2)
		h := <-next
		if h.Token() <= h2.Token() {
			t.Error("the token did not grow")
		}
		unlock(t, h)
	})
}

// TestF110_NestedMaxHold checks that MaxHold of a nested lock ends that lock
// and the locks nested in it, and frees its slot in the outer hold, which goes
// on, 5 s later.
func TestF110_NestedMaxHold(t *testing.T) {
	for _, lock := range []struct {
		name  string
		outer func(*holdfast.Client, context.Context, ...holdfast.Option) (*holdfast.Hold, error)
	}{
		{"Mutex", func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (*holdfast.Hold, error) {
			return c.Mutex("a", o...).Lock(ctx)
		}},
		{"reader", func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (*holdfast.Hold, error) {
			return c.RWMutex("a", o...).RLock(ctx)
		}},
		{"permit", func(c *holdfast.Client, ctx context.Context, o ...holdfast.Option) (*holdfast.Hold, error) {
			return c.Semaphore("a", 3, o...).Acquire(ctx, 2)
		}},
	} {
		t.Run(lock.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				var told losses
				c, other := client(t, memlock.New(s), told.observer()), client(t, memlock.New(s))
				outer := must(t)(lock.outer(c, bg))
				start := time.Now()
				in := must(t)(lock.outer(c, outer.Context(), holdfast.WithMaxHold(50*time.Millisecond)))
				deeper := must(t)(lock.outer(c, in.Context()))
				if left := time.Until(deeper.Deadline()); left > 50*time.Millisecond {
					t.Errorf("a deadline in %v, beyond the MaxHold it is nested in", left)
				}
				hour, cancel := context.WithTimeout(outer.Context(), time.Hour)
				defer cancel()
				ended := make(chan time.Duration, 1)
				go func() {
					select {
					case <-in.Context().Done():
					case <-hour.Done():
					}
					ended <- time.Since(start)
				}()
				next := must(t)(lock.outer(c, hour)) // once the slot is free
				if took := time.Since(start); lock.name != "reader" && took != 5*time.Second+50*time.Millisecond {
					t.Errorf("the place was free after %v", took)
				}
				if took := <-ended; took != 50*time.Millisecond {
					t.Errorf("ended after %v", took)
				}
				for _, h := range []*holdfast.Hold{in, deeper} {
					lost, _ := errors.AsType[*holdfast.LostError](h.Err())
					if lost == nil || lost.Reason != holdfast.LossMaxHold {
						t.Errorf("Err %v", h.Err())
					}
					wantErr(t, h.Unlock(), holdfast.ErrLost)
				}
				time.Sleep(ttl)
				if outer.Err() != nil || next.Err() != nil {
					t.Errorf("the outer hold ended: %v, %v", outer.Err(), next.Err())
				}
				if n, ended := told.counts(); n != 0 || ended != 0 {
					t.Errorf("%d losses and %d ends told of nested holds", n, ended)
				}
				unlock(t, next)
				unlock(t, outer)
				if n := tickets(t, other, "a"); n != 0 {
					t.Errorf("%d tickets stay", n)
				}
				// The last hold of the lock is a nested one: its end releases
				// the lock.
				outer = must(t)(lock.outer(c, bg))
				in = must(t)(lock.outer(c, outer.Context(), holdfast.WithMaxHold(50*time.Millisecond)))
				unlock(t, outer)
				<-in.Context().Done()
				if n := tickets(t, other, "a"); n != 1 {
					t.Errorf("%d tickets, want one until the bound", n)
				}
				time.Sleep(5 * time.Second)
				settle()
				if n := tickets(t, other, "a"); n != 0 {
					t.Errorf("%d tickets stay after the last MaxHold", n)
				}
				// An Unlock comes before the bound.
				outer = must(t)(lock.outer(c, bg))
				in = must(t)(lock.outer(c, outer.Context(), holdfast.WithMaxHold(50*time.Millisecond)))
				deeper = must(t)(lock.outer(c, in.Context()))
				<-in.Context().Done()
				unlock(t, outer)
				for _, h := range []*holdfast.Hold{in, deeper} {
					if n := tickets(t, other, "a"); n != 1 {
						t.Errorf("%d tickets before the last Unlock", n)
					}
					wantErr(t, h.Unlock(), holdfast.ErrLost)
				}
				if n := tickets(t, other, "a"); n != 0 {
					t.Errorf("%d tickets stay after the last Unlock", n)
				}
			})
		})
	}
}

// TestF110_NestedOptionsThatCannotBe checks that a nested lock with another
// owner, TTL or renewal than the outer hold is refused, and that a nested lock
// without these options has those of the outer hold.
func TestF110_NestedOptionsThatCannotBe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		outer := must(t)(c.Mutex("a", holdfast.WithOwner("x"), holdfast.WithTTL(time.Minute)).Lock(bg))
		free := must(t)(c.Mutex("b").Lock(bg))
		manual := must(t)(c.Mutex("c", holdfast.WithManualRenewal()).Lock(bg))
		for name, x := range map[string]struct {
			in   *holdfast.Hold
			opt  holdfast.Option
			want string // "" if the lock nests
		}{
			"another owner":       {outer, holdfast.WithOwner("y"), `owner "y" inside a hold of owner "x"`},
			"an owner in no one":  {free, holdfast.WithOwner("y"), `owner "y" inside a hold of owner ""`},
			"another TTL":         {outer, holdfast.WithTTL(ttl), "TTL 30s inside a hold with a TTL of 1m0s"},
			"manual renewal":      {free, holdfast.WithManualRenewal(), "WithManualRenewal inside a hold that the client renews"},
			"the same renewal":    {manual, holdfast.WithManualRenewal(), ""},
			"the outer renewal":   {manual, holdfast.WithMaxHold(time.Hour), ""},
			"the same owner":      {outer, holdfast.WithOwner("x"), ""},
			"the same TTL":        {outer, holdfast.WithTTL(time.Minute), ""},
			"a note":              {outer, holdfast.WithNote("inner"), ""},
			"the client's TTL":    {free, holdfast.WithTTL(c.TTL()), ""},
			"a MaxHold of no end": {free, holdfast.WithMaxHold(0), ""},
		} {
			for _, try := range []bool{false, true} {
				m := c.Mutex(x.in.Name(), x.opt)
				lock := m.Lock
				if try {
					lock = m.TryLock
				}
				h, err := lock(x.in.Context())
				switch {
				case err == nil && x.want == "":
					if renewed := h.Renew(bg); (renewed == nil) != (x.in == manual) {
						t.Errorf("%s: Renew: %v", name, renewed)
					}
					unlock(t, h)
				case err == nil:
					t.Errorf("%s nests", name)
					unlock(t, h)
				case x.want == "" || !strings.Contains(err.Error(), x.want):
					t.Errorf("%s: %v, want %q", name, err, x.want)
				}
			}
		}
		unlock(t, must(t)(c.Mutex("a").Lock(outer.Context()))) // nothing of a refused call stays
		unlock(t, outer)
		unlock(t, free)
		unlock(t, manual)
		all := client(t, memlock.New(memlock.NewStore()), holdfast.WithManualRenewal()) // the client's way, not the lock's
		outer = must(t)(all.Mutex("a").Lock(bg))
		unlock(t, must(t)(all.Mutex("a").Lock(outer.Context())))
		unlock(t, outer)
	})
}
