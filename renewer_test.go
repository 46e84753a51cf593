package holdfast_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF64_TenThousandHolds bounds the goroutines, the requests of each round
// and the size of batches under ten thousand holds.
func TestF64_TenThousandHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		before := runtime.NumGoroutine()
		largest := 0
		flying, most := 0, 0
		d.renew = func(_ context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error) {
			d.mu.Lock()
			largest = max(largest, len(refs))
			flying++
			most = max(most, flying)
			d.mu.Unlock()
			time.Sleep(2 * time.Millisecond)
			d.mu.Lock()
			flying--
			d.mu.Unlock()
			return next()
		}
		const n = 10_000
		hs := make([]*holdfast.Hold, n)
		for i := range hs {
			hs[i] = must(t)(c.Mutex(fmt.Sprint(i)).Lock(bg))
		}
		time.Sleep(ttl / 3) // the first round
		d.mu.Lock()
		sent, renewed := d.renews, d.renewed
		d.mu.Unlock()
		const rounds = 30
		time.Sleep(rounds * ttl / 3)
		d.mu.Lock()
		sent, renewed = d.renews-sent, d.renewed-renewed
		batch, atOnce := largest, most // the next round may be in flight
		d.mu.Unlock()
		if most := float64(renewed) / (n * rounds); most > 1.15 {
			t.Errorf("each ticket was renewed %.2f times a round", most)
		}
		if got := float64(sent) / rounds / (n / 100); got > 1.1 {
			t.Errorf("%.2f requests for 100 tickets a round", got)
		}
		if batch > 100 || atOnce != 1 {
			t.Errorf("batches of up to %d, %d at once on one lane", batch, atOnce)
		}
		if got := runtime.NumGoroutine() - before; got > 10 {
			t.Errorf("%d goroutines for %d holds", got, n)
		}
		for _, h := range hs {
			if h.Err() != nil {
				t.Fatal(h.Err())
			}
			unlock(t, h)
		}
	})
}

// lanes is a memory store whose lanes are the first letters of names.
type lanes struct{ *hooked }

func (l lanes) Traits() driver.Traits {
	t := l.hooked.Traits()
	t.Lane = func(name string) uint64 { return uint64(name[0]) }
	return t
}

// TestF22_StuckLane covers F22. It checks that one silent lane delays its own
// tickets only, and so do three.
func TestF22_StuckLane(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, lanes{d})
		held := map[string]*holdfast.Hold{}
		for _, lane := range "abcdefgh" {
			for i := range 300 {
				name := fmt.Sprintf("%c%d", lane, i)
				held[name] = must(t)(c.Mutex(name).Lock(bg))
			}
		}
		stuck := "ab"
		d.set(func(d *hooked) {
			d.renew = func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error) {
				lane := refs[0].Name[0]
				for _, r := range refs {
					if r.Name[0] != lane {
						t.Errorf("%s and %s in one request", refs[0].Name, r.Name)
					}
				}
				if slices.Contains([]byte(stuck), lane) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return next()
			}
		})
		time.Sleep(4 * ttl)
		for name, h := range held {
			want := error(nil)
			if slices.Contains([]byte(stuck), name[0]) {
				want = holdfast.ErrLost
			}
			wantErr(t, h.Err(), want)
			_ = h.Unlock()
		}
	})
}

// TestF23_StallUnderManyHolds checks that ten thousand holds survive a store
// that stands still for 0.8 of the TTL.
//
// Covers: F21.
func TestF23_StallUnderManyHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		var lost sync.Map
		c := client(t, d, holdfast.WithObserver(onLoss(func(e *holdfast.LostError) { lost.Store(e.Name, true) })))
		const n = 10_000
		hs := make([]*holdfast.Hold, n)
		for i := range hs {
			hs[i] = must(t)(c.Mutex(fmt.Sprint(i)).Lock(bg))
		}
		// A round of renewals takes a sixth of the TTL. The stall begins after
		// the round, and requests sent meanwhile are answered late or not at
		// all.
		time.Sleep(ttl/3 + ttl/6 + 50*time.Millisecond)
		stalled := make(chan struct{})
		d.set(func(d *hooked) {
			d.renew = func(ctx context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
				select {
				case <-stalled:
					time.Sleep(2 * time.Millisecond)
					return next()
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
		time.Sleep(ttl * 8 / 10)
		close(stalled)
		time.Sleep(2 * ttl)
		kept := 0
		for _, h := range hs {
			if h.Err() == nil {
				kept++
			} else if _, told := lost.Load(h.Name()); !told {
				t.Fatalf("%s was lost and not told", h.Name())
			}
			_ = h.Unlock()
		}
		if kept < n*99/100 {
			t.Errorf("%d of %d kept", kept, n)
		}
	})
}

// TestF51_ManyWaiters covers F51. It checks that a thousand waiters cost no
// goroutine beside their own, and one place.
func TestF51_ManyWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		a, b := client(t, memlock.New(s)), client(t, d)
		h := must(t)(a.Mutex("a").Lock(bg))
		before := runtime.NumGoroutine()
		var wg sync.WaitGroup
		n := 0
		for range 1000 {
			wg.Go(func() {
				h := must(t)(b.Mutex("a").Lock(bg))
				n++
				unlock(t, h)
			})
		}
		synctest.Wait()
		if got := runtime.NumGoroutine() - before - 1000; got > 3 {
			t.Errorf("%d goroutines beside the waiters'", got)
		}
		if got := tickets(t, a, "a"); got != 2 || d.joins != 1 {
			t.Errorf("%d tickets and %d Joins for 1,000 waiters", got, d.joins)
		}
		unlock(t, h)
		wg.Wait()
		if n != 1000 {
			t.Errorf("%d of 1,000", n)
		}
		if d.joins > 6 {
			t.Errorf("%d Joins for 1,000 hand-overs", d.joins)
		}
	})
}

// TestF48_DeadHeads covers F48. It checks that several dead heads of the queue
// delay the next waiter by one lease, not by one each.
func TestF48_DeadHeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var dead []*hooked
		for range 10 {
			d := hook(s)
			c := client(t, d)
			go func() { _, _ = c.Mutex("a").Lock(bg) }()
			synctest.Wait()
			dead = append(dead, d)
		}
		c := client(t, memlock.New(s))
		start := time.Now()
		for _, d := range dead {
			d.cut()
		}
		unlock(t, must(t)(c.Mutex("a").Lock(bg)))
		if got := time.Since(start); got > ttl+ttl/20 {
			t.Errorf("waited %v behind ten that died together", got)
		}
	})
}
