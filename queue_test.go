package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestHandOverToTheJoinerPassesTheRoleOn checks a local hand-off to a waiter
// that has just become the joiner and has not sent its Join: the waiter behind
// it becomes the joiner then.
func TestHandOverToTheJoinerPassesTheRoleOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		o := client(t, memlock.New(s))
		c := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{
			LockWait: func(context.Context, holdfast.LockWaitInfo) { time.Sleep(5 * time.Millisecond) }}))
		sem := c.Semaphore("s", 2)
		theirs := must(t)(o.Semaphore("s", 2).Acquire(bg, 1))
		ours := must(t)(sem.Acquire(bg, 1))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(bg, ttl)
				defer cancel()
				h := must(t)(sem.Acquire(ctx, 1))
				time.Sleep(20 * time.Millisecond)
				unlock(t, h)
			})
			synctest.Wait() // the goroutine before is busy in its Observer
		}
		unlock(t, theirs) // to the first; the second is to join
		unlock(t, ours)   // to the second, before it runs
		wg.Wait()
		if n := tickets(t, o, "s"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// TestHandOverDuringAJoin hands a hold to the joiner while its Join is in
// flight. It checks that a waiter behind the joiner that gives up does not
// abandon the ticket of that Join.
func TestHandOverDuringAJoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		sem := c.Semaphore("s", 2)
		ours := must(t)(sem.Acquire(bg, 1))
		var joining atomic.Value
		d.join = func(_ context.Context, tk *driver.Ticket, next joinFunc) (driver.Status, error) {
			joining.Store(tk.ID)
			time.Sleep(time.Second)
			p, err := next()
			joining.Store("")
			return p, err
		}
		d.leave = func(_ context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error) {
			if refs[0].ID == joining.Load() && !refs[0].JoinPending {
				t.Error("a Leave overtook its Join")
			}
			return next()
		}
		var wg sync.WaitGroup
		hold := func(ctx context.Context) {
			wg.Go(func() {
				h, err := sem.Acquire(ctx, 1)
				if err != nil {
					wantErr(t, err, context.Canceled)
					return
				}
				time.Sleep(3 * ttl)
				unlock(t, h)
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(bg)
		hold(bg)
		hold(ctx)
		unlock(t, ours)
		cancel()
		synctest.Wait()
		hold(bg)
		time.Sleep(ttl)
		if n := tickets(t, o, "s"); n != 2 {
			t.Errorf("%d tickets for two holds", n)
		}
		wg.Wait()
		if n := tickets(t, o, "s"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// busy returns a client, and a maker of contexts whose waiters do not look at
// their turn before they are told to. Pushes flow.
func busy(t *testing.T, d driver.Driver) (c *holdfast.Client, slow func(context.Context) context.Context, look func()) {
	c = client(t, d)
	unlock(t, must(t)(c.Mutex("first").Lock(bg)))
	gate := make(chan struct{})
	return c, func(ctx context.Context) context.Context { return slowCtx{ctx, gate} }, func() { close(gate) }
}

// slowCtx is a context that blocks callers of Done.
type slowCtx struct {
	context.Context
	gate chan struct{}
}

func (c slowCtx) Done() <-chan struct{} {
	<-c.gate
	return c.Context.Done()
}

// TestReplacedTicketIsLeftWithoutItsSuccessor checks a release that was to
// travel with the next goroutine's Join: if that goroutine gives up, the
// release is sent alone.
func TestReplacedTicketIsLeftWithoutItsSuccessor(t *testing.T) {
	for range 10 { // chance decides what the waiter sees first
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			c, slow, look := busy(t, memlock.New(s))
			o := client(t, memlock.New(s))
			h := must(t)(c.Mutex("a").Lock(bg))
			ctx, cancel := context.WithCancel(bg)
			done := make(chan error)
			go func() { _, err := c.Mutex("a").Lock(slow(ctx)); done <- err }()
			time.Sleep(time.Second) // too long for a local hand-off
			unlock(t, h)
			cancel()
			look()
			wantErr(t, <-done, context.Canceled)
			synctest.Wait()
			if n := tickets(t, o, "a"); n != 0 {
				t.Fatalf("%d tickets stay", n)
			}
		})
	}
}

// TestLostGrantKeepsTheTurn checks that a waiter whose grant is lost before the
// waiter has seen it keeps its turn among the goroutines of its client.
func TestLostGrantKeepsTheTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, slow, look := busy(t, memlock.New(s))
		o, p := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(o.Mutex("a").Lock(bg))
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				h := must(t)(c.Mutex("a").Lock(slow(bg)))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				unlock(t, h)
			})
			synctest.Wait()
		}
		theirs := make(chan *holdfast.Hold)
		go func() { theirs <- must(t)(p.Mutex("a").Lock(bg)) }()
		synctest.Wait()
		unlock(t, h) // to the first, which is busy
		l, _ := o.Inspect(bg, "a")
		if err := o.Break(bg, "a", l.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		h = <-theirs
		look()
		synctest.Wait()
		unlock(t, h)
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("order %v", order)
		}
	})
}

// TestF49_PushAfterTheClaim covers F49. It checks that a push of a grant gives
// no hold if the ticket was not renewed in time; a renewal that finds the grant
// does.
func TestF49_PushAfterTheClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		h := must(t)(o.Mutex("a").Lock(bg))
		got := make(chan *holdfast.Hold)
		go func() { got <- must(t)(c.Mutex("a").Lock(bg)) }()
		synctest.Wait()
		d.set(func(d *hooked) {
			d.renew = func(context.Context, []driver.Ref, batchFunc) ([]driver.Status, error) {
				return nil, driver.Errorf(driver.Unavailable, "no")
			}
		})
		time.Sleep(ttl) // over for the client, not yet for the store
		unlock(t, h)
		synctest.Wait()
		select {
		case h := <-got:
			t.Fatalf("held without a claim: %v", h.Err())
		default:
		}
		d.heal()
		h = <-got
		if h.Err() != nil || time.Until(h.Deadline()) < ttl/2 {
			t.Errorf("Err %v, claim ends in %v", h.Err(), time.Until(h.Deadline()))
		}
		unlock(t, h)
	})
}

// TestQueueBeforeASilentStore checks that a silent store is reported at once to
// all goroutines that have queued for long enough, not to one after the other.
func TestQueueBeforeASilentStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		d.cut()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				start := time.Now()
				_, err := c.Mutex("a").Lock(bg)
				if _, ok := errors.AsType[*holdfast.StoreError](err); !ok {
					t.Errorf("Lock: %v", err)
				}
				if got := time.Since(start); got > 30*time.Second {
					t.Errorf("waiter %d learnt it after %v", i, got)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()

		// A goroutine that has just inherited another's ticket has a retry
		// budget of its own.
		d.heal()
		d.set(func(d *hooked) {
			d.join = func(context.Context, *driver.Ticket, joinFunc) (driver.Status, error) {
				return driver.Status{}, errCut
			}
		})
		ctx, cancel := context.WithTimeout(bg, 4900*time.Millisecond)
		defer cancel()
		wg.Go(func() {
			_, err := c.Mutex("a").Lock(ctx)
			wantErr(t, err, context.DeadlineExceeded)
		})
		time.Sleep(4800 * time.Millisecond)
		wg.Go(func() { unlock(t, must(t)(c.Mutex("a").Lock(bg))) })
		time.Sleep(1000 * time.Millisecond)
		d.heal()
		wg.Wait()
	})
}

// TestF47_EndAndGrantAtOnce covers F47. The wait has ended and the grant has
// come when the waiter runs.
func TestF47_EndAndGrantAtOnce(t *testing.T) {
	for range 40 { // chance decides which of the two the waiter sees first
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			busy := make(chan struct{})
			c, o := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{
				LockWait: func(context.Context, holdfast.LockWaitInfo) { <-busy }})), client(t, memlock.New(s))
			h := must(t)(o.Mutex("a").Lock(bg))
			ctx, cancel := context.WithCancel(bg)
			done := make(chan error)
			go func() {
				h, err := c.Mutex("a").Lock(ctx)
				if err == nil {
					err = h.Unlock()
				}
				done <- err
			}()
			synctest.Wait()
			unlock(t, h)
			cancel()
			close(busy)
			if err := <-done; err != nil {
				wantErr(t, err, context.Canceled)
			}
			synctest.Wait()
			if n := tickets(t, o, "a"); n != 0 {
				t.Fatalf("%d tickets stay", n)
			}
		})
	}
}

// TestStrictOrderOverClients checks that without faults grants come in the
// order of the requests for places, over all clients. Readers may be granted
// together, and waiters that give up are passed over.
func TestStrictOrderOverClients(t *testing.T) {
	for seed := range uint64(30) {
		bubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			s := memlock.NewStore()
			type entry struct {
				asked int
				write bool
			}
			var mu sync.Mutex
			var log []entry
			var wg sync.WaitGroup
			for i := range 40 {
				time.Sleep(time.Duration(1+rnd.IntN(3000)) * time.Microsecond)
				write, stay := rnd.IntN(3) == 0, time.Duration(rnd.IntN(8000))*time.Microsecond
				ctx, cancel := bg, func() {}
				if rnd.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(bg, time.Duration(rnd.IntN(20000))*time.Microsecond)
				}
				c := client(t, memlock.New(s))
				wg.Go(func() {
					defer cancel()
					lock := c.RWMutex("rw").RLock
					if write {
						lock = c.RWMutex("rw").Lock
					}
					h, err := lock(ctx)
					if err != nil {
						wantErr(t, err, context.DeadlineExceeded)
						return
					}
					mu.Lock()
					for _, e := range log {
						if e.asked > i && (e.write || write) {
							t.Errorf("seed %d: %d (write %v) came before %d (write %v)", seed, e.asked, e.write, i, write)
						}
					}
					log = append(log, entry{i, write})
					mu.Unlock()
					time.Sleep(stay)
					unlock(t, h)
				})
				synctest.Wait()
			}
			wg.Wait()
			if len(log) < 20 {
				t.Errorf("only %d of 40 came in", len(log))
			}
		})
	}
}

// holdsAfter checks that a Lock has no hold beside second, and gets one with a greater
// token when second is unlocked.
func holdsAfter(t *testing.T, got <-chan *holdfast.Hold, second *holdfast.Hold) {
	t.Helper()
	select {
	case h := <-got:
		t.Fatalf("two hold: %v, %v", h.Err(), second.Err())
	default:
	}
	unlock(t, second)
	h := <-got
	if h.Token() <= second.Token() {
		t.Errorf("token %d after %d", h.Token(), second.Token())
	}
	unlock(t, h)
}

// TestF49_PushOfAnExpiredPlaceGrantsNothing covers F49. The reply to a Join is
// lost, its place is granted by push and expires, and a repeated Join takes
// another place: the push says nothing about that one, and Lock waits for its
// turn.
func TestF49_PushOfAnExpiredPlaceGrantsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		first := must(t)(o.Mutex("a").Lock(bg))
		start := time.Now()
		d.set(func(d *hooked) {
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				since := time.Since(start)
				switch {
				case since == 0:
					_, _ = next()
				case since > ttl*7/10 && since < ttl:
					time.Sleep(ttl*11/10 - since) // the process is paused
					d.heal()
					// A store without tombstones of expired tickets has queued it again.
					return driver.Status{State: driver.Waiting, Lease: ttl, Ahead: 1}, nil
				}
				return driver.Status{}, driver.Errorf(driver.Unknown, "cut")
			}
		})
		got := make(chan *holdfast.Hold, 1)
		go func() { got <- must(t)(c.Mutex("a").Lock(bg)) }()
		synctest.Wait()
		unlock(t, first) // grants the place, and pushes the grant
		second := must(t)(o.Mutex("a").Lock(bg))
		if since := time.Since(start); since < ttl || since > ttl*11/10 {
			t.Fatalf("the place ended after %v", since)
		}
		time.Sleep(ttl / 2)
		holdsAfter(t, got, second)
	})
}

// TestF49_LatePushAfterALateJoin covers F49. A place that was granted expires before
// the push of its grant arrives, and a Join that comes late takes another one in the
// name of the same ticket, which a renewal confirms. The push then grants nothing: Lock
// waits for the turn of the new place.
func TestF49_LatePushAfterALateJoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		first := must(t)(o.Mutex("a").Lock(bg))
		joins, deliver := 0, func() {}
		d.set(func(d *hooked) {
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				if joins++; joins == 1 {
					return driver.Status{}, driver.Errorf(driver.Unknown, "cut")
				}
				return next()
			}
			d.push = func(id string, p driver.Status, next func(string, driver.Status)) {
				deliver = func() { next(id, p) }
			}
		})
		got := make(chan *holdfast.Hold, 1)
		go func() { got <- must(t)(c.Mutex("a").Lock(bg)) }()
		time.Sleep(ttl / 5) // the Join is repeated, and takes a place
		d.set(func(d *hooked) {
			d.renew = func(context.Context, []driver.Ref, batchFunc) ([]driver.Status, error) {
				return nil, driver.Errorf(driver.Unavailable, "no")
			}
		})
		unlock(t, first) // grants the place; the push is under way
		second := must(t)(o.Mutex("a").Lock(bg))
		found := make(chan struct{})
		d.set(func(d *hooked) {
			d.push = nil
			d.renew = func(_ context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error) {
				if len(refs) != 1 || refs[0].State != driver.Waiting {
					return next()
				}
				// A store without tombstones of expired tickets has queued it again, by
				// the first Join.
				d.set(func(d *hooked) { d.renew = nil })
				defer close(found)
				return []driver.Status{{State: driver.Waiting, Lease: ttl, Ahead: 1}}, nil
			}
		})
		<-found
		synctest.Wait()
		deliver()
		synctest.Wait()
		holdsAfter(t, got, second)
	})
}

// TestLocalWaitersQueueWhenTheirHoldEnds checks what the pages of etcd and ZooKeeper
// say of the order: a goroutine that waits behind a hold of its own client takes a
// place at the store when that hold ends, behind a client that came meanwhile.
func TestLocalWaitersQueueWhenTheirHoldEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s))
		first := must(t)(a.Mutex("a").Lock(bg))
		order := make(chan string, 2)
		var wg sync.WaitGroup
		next := func(c *holdfast.Client, who string) {
			wg.Go(func() { h := must(t)(c.Mutex("a").Lock(bg)); order <- who; unlock(t, h) })
			synctest.Wait()
		}
		next(a, "the same client")
		if n := tickets(t, b, "a"); n != 1 {
			t.Errorf("%d tickets, want that of the hold: its client's goroutines wait in their process", n)
		}
		time.Sleep(time.Second) // local hand-offs are over
		next(b, "another client")
		unlock(t, first)
		wg.Wait()
		if one, two := <-order, <-order; one != "another client" || two != "the same client" {
			t.Errorf("the lock went to %s, then to %s", one, two)
		}
	})
}
