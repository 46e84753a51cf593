package sqlqueue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// countMax is the distance from the holders up to which places are counted exactly.
const countMax = 256

// deepQueue returns a queue of a holder and n waiters, which stay for an hour.
func deepQueue(t testing.TB, n int) (f *fixture, waiting []*driver.Ticket) {
	f = newFixture(t, false)
	for i := range n + 1 {
		ticket := f.ticket("n", 1, 1)
		ticket.TTL = time.Hour
		if i == 0 {
			f.join(ticket, driver.Held)
			continue
		}
		f.join(ticket, driver.Waiting)
		waiting = append(waiting, ticket)
	}
	return f, waiting
}

// BenchmarkRenewInADeepQueue renews waiters in the middle of queues.
func BenchmarkRenewInADeepQueue(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		f, waiting := deepQueue(b, n)
		for _, each := range []int{1, 100} {
			some := refs(driver.Waiting, waiting[(n-each)/2:(n-each)/2+each]...)
			b.Run(fmt.Sprintf("waiters=%d/refs=%d", n, each), func(b *testing.B) {
				for b.Loop() {
					if ps, _ := f.Renew(context.Background(), f.db, some); ps[0].State != driver.Waiting || ps[0].Err != nil {
						b.Fatalf("%+v", ps[0])
					}
				}
			})
		}
	}
}

// TestAheadDeepInAQueue checks the number of places before a waiter: exact near the
// holder, and deep in the queue between the places that are left and all that are
// waiting, however it is asked.
func TestAheadDeepInAQueue(t *testing.T) {
	const n = 3 * countMax
	f, waiting := deepQueue(t, n)
	ctx := context.Background()
	const gave = 50 // places near the holder that are given up, after which the rest moves up
	if ps, _ := f.Leave(ctx, f.db, refs(driver.Waiting, waiting[10:10+gave]...)); ps[0].State != driver.Waiting || ps[0].Err != nil {
		t.Fatalf("%+v", ps[0])
	}
	left := append(append([]*driver.Ticket(nil), waiting[:10]...), waiting[10+gave:]...)
	for i, ticket := range left {
		if i%7 != 0 && i > 12 && i < len(left)-2 {
			continue
		}
		renewed, _ := f.Renew(ctx, f.db, refs(driver.Waiting, ticket))
		joined, _ := f.join(ticket, driver.Waiting)
		for how, s := range map[string]driver.Status{"Renew": renewed[0], "Join": joined} {
			if s.Err != nil || s.State != driver.Waiting {
				t.Fatalf("%s of place %d: %+v", how, i, s)
			}
			// The holder and i waiters are before it.
			if exact := i + 1; s.Ahead < exact || s.Ahead > exact+gave || s.Ahead > len(left) || i+gave < countMax-1 && s.Ahead != exact {
				t.Errorf("%s of place %d of %d: %d are ahead, want %d", how, i, len(left), s.Ahead, exact)
			}
		}
	}
}

// TestF130_RenewalInADeepQueueCostsNoMore checks that a renewal does not read the
// other places of its queue: of many renewals, the quickest among thousands of waiters
// takes as long as among few.
func TestF130_RenewalInADeepQueueCostsNoMore(t *testing.T) {
	quickest := func(n, at int) time.Duration {
		f, waiting := deepQueue(t, n)
		least := time.Hour
		for range 50 {
			began := time.Now()
			if ps, _ := f.Renew(context.Background(), f.db, refs(driver.Waiting, waiting[at])); ps[0].State != driver.Waiting || ps[0].Err != nil {
				t.Fatalf("%+v", ps[0])
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	few := quickest(10, 9)
	for _, at := range []int{9, 1900} {
		if many := quickest(2000, at); many > 5*few {
			t.Errorf("a renewal of place %d takes %v in a queue of 2,000, and %v in one of 10", at, many, few)
		}
	}
}
