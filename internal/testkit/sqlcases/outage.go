package sqlcases

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

// long bounds the waits of a test.
const long = 2 * time.Minute

// mutexes returns the mutex of one name at each of n clients, which are closed
// with the test.
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

// Outage describes the outages of a server while a lock is held and waited for.
type Outage struct {
	// Open opens a client that the test closes.
	Open func() driver.Driver
	// Waits reports whether the waiting ticket has reached the state in which
	// it must not be lost, and Held returns the number of holders after the
	// outage.
	Waits func() bool
	Held  func() int64
	// ServerMoves says that clients must find the server again afterwards, so
	// that a release may fail at first.
	ServerMoves bool
}

// Survive lets one client hold and another wait while each of the outages
// begins and ends. It checks that the hold survives, that the wait goes on, and
// that tokens grow.
func (o Outage) Survive(t *testing.T, outages ...func()) {
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
		for err = h.Unlock(); err != nil && o.ServerMoves && ctx.Err() == nil; err = h.Unlock() {
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

// CountsExactly counts under a lock, from several goroutines of several
// clients, while disturb is called again and again. It checks that no call
// returns an error and that the count is exact. A nil disturb is not called.
func CountsExactly(t *testing.T, clients, goroutines, times int, open func() driver.Driver, disturb func()) {
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

// CountsWhileKilled runs CountsExactly while connections are killed, in any
// step. Kill kills some and returns their number.
func CountsWhileKilled(t *testing.T, open func() driver.Driver, kill func() int64) {
	t.Helper()
	kills := int64(0)
	CountsExactly(t, 3, 3, 8, open, func() { kills += kill() })
	t.Logf("%d connections killed", kills)
	if kills == 0 {
		t.Error("no connection was killed")
	}
}

// RequestsFail lets a client that holds send more requests to a server that
// refuses them. It checks that a join fails within this time, with this class
// and these words, and that a renewal fails, too.
func RequestsFail(t *testing.T, d driver.Driver, holder *driver.Ticket, within time.Duration, class driver.Class, say string) {
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
