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
	"github.com/holdfast-go/holdfast/memlock"
)

// The nested case of the founding texts: a() holds and calls b(), which locks.
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
		unlock(t, inner) // one more than locks
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
	})
}

// A context that is no hold's does not re-enter, in whatever goroutine.
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
		// Another name, another client: not nested either.
		unlock(t, must(t)(c.Mutex("b").Lock(h.Context())))
		unlock(t, h)
	})
}

// Goroutines that share a hold's context are serialised.
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
						return m.Do(ctx, func(context.Context) error { return nil }) // deeper is free
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
		h2 := must(t)(b.Mutex("m", job).Lock(bg))    // overtakes: it is the holder
		h3 := must(t)(a.Mutex("m", job).TryLock(bg)) // and in the first process
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

func TestDetach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a := client(t, memlock.New(s))
		job := holdfast.WithOwner("job")
		h := must(t)(a.Mutex("m", job).Lock(bg))
		time.Sleep(time.Second)
		if err := h.Detach(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, h.Err(), holdfast.ErrReleased)
		wantErr(t, h.Unlock(), holdfast.ErrReleased)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		b := client(t, memlock.New(s)) // the next process
		time.Sleep(ttl - time.Second)
		_, err := b.Mutex("m").TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		h2 := must(t)(b.Mutex("m", job).TryLock(bg))
		if h2.Token() != h.Token() {
			t.Errorf("token %d, want that of the job, %d", h2.Token(), h.Token())
		}
		if err := must(t)(b.Mutex("x").Lock(bg)).Detach(); err == nil {
			t.Error("a hold without owner was detached")
		}
		unlock(t, h2)
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

		// One lost is all lost.
		lost := errors.New("not lost")
		err = m.Do(bg, func(ctx context.Context) error {
			l, _ := b.Inspect(bg, "y")
			if err := b.Break(bg, "y", l.Tickets[0].ID); err != nil {
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

// F65: opposite orders never wait in a circle.
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
