package holdfast_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// busy makes a client whose waiters do not look at their turn before told to.
func busy(t *testing.T, d driver.Driver) (c *holdfast.Client, look func()) {
	var mu sync.Mutex
	gate := make(chan struct{})
	c = client(t, d, holdfast.WithObserver(&holdfast.Observer{Waiting: func(string, holdfast.Holder) {
		mu.Lock()
		g := gate
		mu.Unlock()
		<-g
	}}))
	return c, func() { close(gate) }
}

// A release that was to travel with the next goroutine's Join is sent without
// it when that goroutine has given up.
func TestReplacedTicketIsLeftWithoutItsSuccessor(t *testing.T) {
	for range 10 { // what the waiter sees first is left to chance
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			c, look := busy(t, memlock.New(s))
			o := client(t, memlock.New(s))
			h := must(t)(c.Mutex("a").Lock(bg))
			ctx, cancel := context.WithCancel(bg)
			done := make(chan error)
			go func() { _, err := c.Mutex("a").Lock(ctx); done <- err }()
			time.Sleep(time.Second) // too long for a hand-over
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

// A waiter whose grant is lost before it has looked keeps its turn among the
// goroutines of its client.
func TestLostGrantKeepsTheTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, look := busy(t, memlock.New(s))
		o, p := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(o.Mutex("a").Lock(bg))
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				h := must(t)(c.Mutex("a").Lock(bg))
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
		if err := o.Break(bg, "a", l.Tickets[0].ID); err != nil {
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

// F49: a push of a grant to a ticket that has not been renewed in time gives no
// hold by itself; a renewal that finds it does.
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
			d.renew = func(context.Context, []driver.Ref, batchFunc) ([]driver.Place, error) {
				return nil, errCut
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

// A Try does not queue behind waiters of its own client.
func TestTryBehindLocalWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, o := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(o.Semaphore("s", 2).Acquire(bg, 2))
		done := make(chan struct{})
		go func() { unlock(t, must(t)(c.Semaphore("s", 2).Acquire(bg, 1))); close(done) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err := c.Semaphore("s", 2).TryAcquire(ctx, 1)
		wantErr(t, err, holdfast.ErrHeld)
		unlock(t, h)
		<-done
	})
}

// A Try whose grant is lost before it has looked does not wait for the next
// one: by then others of its client are ahead, and their ticket waits.
func TestLostGrantOfATryDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, look := busy(t, d)
		o := client(t, memlock.New(s))
		unlock(t, must(t)(c.Mutex("other").Lock(bg))) // so that pushes flow
		asked, answer := make(chan struct{}), make(chan struct{})
		d.set(func(d *hooked) {
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Place, error) {
				close(asked)
				<-answer
				return next()
			}
		})
		first := make(chan *holdfast.Hold)
		go func() { first <- must(t)(c.RWMutex("a").TryRLock(bg)) }()
		<-asked
		d.heal()
		second := make(chan error, 1)
		go func() {
			_, err := c.RWMutex("a").TryRLock(bg)
			second <- err
		}()
		synctest.Wait()
		close(answer) // with a grant to both, of whom the second is busy
		h := <-first
		theirs := make(chan *holdfast.Hold)
		go func() { theirs <- must(t)(o.RWMutex("a").Lock(bg)) }()
		synctest.Wait()
		l, err := o.Inspect(bg, "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Break(bg, "a", l.Tickets[0].ID); err != nil {
			t.Fatal(err)
		}
		w := <-theirs
		wantErr(t, h.Err(), holdfast.ErrLost)
		third := make(chan *holdfast.Hold)
		go func() { third <- must(t)(c.RWMutex("a").RLock(bg)) }()
		synctest.Wait()
		look()
		synctest.Wait()
		select {
		case err := <-second:
			wantErr(t, err, holdfast.ErrHeld)
		default:
			t.Error("TryRLock waits for somebody else's turn")
		}
		unlock(t, w)
		unlock(t, <-third)
	})
}
