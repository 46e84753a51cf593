package linetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// long bounds what a test waits for.
const long = 2 * time.Minute

// mutexes returns the mutex of one name at each of n clients, which end with
// the test.
func mutexes(t *testing.T, n int, open func() driver.Driver) []*holdfast.Mutex {
	t.Helper()
	out := make([]*holdfast.Mutex, n)
	for i := range out {
		c, err := holdfast.New(open(), holdfast.WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		out[i] = c.Mutex("n")
	}
	return out
}

// Outage is one of a server that a lock is held and waited for at.
type Outage struct {
	// Open opens a client that the test closes.
	Open func() driver.Driver
	// Waits says whether the ticket that waits has come to where it is not to
	// be lost, and Held how many hold after the outage.
	Waits func() bool
	Held  func() int64
	// Moved says that clients have yet to find the server afterwards, so that
	// a release may fail at first.
	Moved bool
}

// Survived has one client hold and another wait while each of the outages
// begins and ends: the hold survives, the wait goes on, tokens grow.
func (o Outage) Survived(t *testing.T, outages ...func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	locks := mutexes(t, 2, o.Open)
	h, err := locks[0].Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, outage := range outages {
		token := h.Token()
		next := make(chan *holdfast.Hold, 1)
		go func() {
			h, err := locks[(i+1)%2].Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			next <- h
		}()
		for !o.Waits() {
			time.Sleep(time.Millisecond)
		}
		outage()
		if err := h.Err(); err != nil {
			t.Fatalf("the hold did not survive: %v", err)
		}
		if n := o.Held(); n != 1 {
			t.Fatalf("%d hold after the server came back", n)
		}
		for err = h.Unlock(); err != nil && o.Moved && ctx.Err() == nil; err = h.Unlock() {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h = <-next; h == nil {
			return
		}
		if h.Token() <= token {
			t.Errorf("token %d after %d", h.Token(), token)
		}
	}
	if err := h.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// Exact counts under a lock, from several goroutines of several clients, while
// disturb is called again and again. Nobody sees an error, and the count is
// exact. A nil disturb is none.
func Exact(t *testing.T, clients, goroutines, times int, open func() driver.Driver, disturb func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	var wg sync.WaitGroup
	count, inside := 0, 0
	for _, m := range mutexes(t, clients, open) {
		for range goroutines {
			wg.Go(func() {
				for range times {
					err := m.Do(ctx, func(context.Context) error {
						inside++
						if inside != 1 {
							t.Error("two at once")
						}
						count++
						time.Sleep(time.Millisecond)
						inside--
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for over := disturb == nil; !over; {
		select {
		case <-done:
			over = true
		case <-time.After(30 * time.Millisecond):
			disturb()
		}
	}
	<-done
	if want := clients * goroutines * times; count != want {
		t.Errorf("counted to %d, want %d", count, want)
	}
}

// Killed is Exact while connections are killed, in whatever step they are. Kill
// kills some and says how many.
func Killed(t *testing.T, open func() driver.Driver, kill func() int64) {
	t.Helper()
	kills := int64(0)
	Exact(t, 3, 3, 8, open, func() { kills += kill() })
	t.Logf("%d connections killed", kills)
	if kills == 0 {
		t.Error("no connection was killed")
	}
}

// Fails has a client that holds ask a server for more that lets it have
// nothing: a join fails within a time, with this class and these words, and so
// does a renewal.
func Fails(t *testing.T, d driver.Driver, holder *driver.Ticket, within time.Duration, class driver.Class, say string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_, err := d.Join(ctx, Ticket(2, holder.Name), true)
	if driver.ClassOf(err) != class || !strings.Contains(fmt.Sprint(err), say) {
		t.Errorf("class %v: %v; want %v: %s", driver.ClassOf(err), err, class, say)
	}
	places, err := d.Renew(ctx, held(holder))
	if err == nil {
		err = places[0].Err
	}
	if err == nil {
		t.Errorf("%s: a renewal succeeds", say)
	}
}
