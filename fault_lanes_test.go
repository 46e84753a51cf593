package holdfast_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// nodes is a memory store whose names are spread over 64 lanes.
type nodes struct{ *hooked }

func node(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64() % 64
}

func (n nodes) Traits() driver.Traits {
	t := n.hooked.Traits()
	t.Lane = node
	return t
}

// losesOnce returns a hook that loses the answer of each ticket's first
// renewal.
func losesOnce(silent func(driver.Ref) bool) func(context.Context, []driver.Ref, batchFunc) ([]driver.Status, error) {
	var mu sync.Mutex
	lost := make(map[string]bool)
	return func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error) {
		hang := false
		mu.Lock()
		for _, r := range refs {
			if r.State == driver.Held && !lost[r.ID] || silent(r) {
				lost[r.ID], hang = true, true
			}
		}
		mu.Unlock()
		if hang {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return next()
	}
}

// ttls returns the TTLs of one client, from the least to the default.
func ttls(d driver.Driver) []time.Duration {
	return []time.Duration{d.Traits().MinTTL, time.Second, 3 * time.Second, 6 * time.Second, 30 * time.Second}
}

// TestF108_SilentLanesAmongMany checks that a client loses nothing where the
// store answers, though a third of 64 lanes is silent under many holds of all
// TTLs, and every answer to a first renewal gets lost too.
func TestF108_SilentLanesAmongMany(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, n := range []int{200, 600} {
			bubble(t, func(t *testing.T) {
				d := hook(memlock.NewStore())
				c := client(t, nodes{d})
				silent := func(r driver.Ref) bool { return node(r.Name) < 21 }
				times := append([]time.Duration{100 * time.Millisecond}, ttls(d)[1:]...) // the least of servers
				hs := make(map[string]*holdfast.Hold)
				for i := range n {
					name := fmt.Sprint("name ", i)
					hs[name] = must(t)(c.Mutex(name, holdfast.WithTTL(times[i%len(times)])).Lock(bg))
				}
				renew := losesOnce(silent)
				if !lost {
					renew = func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error) {
						if silent(refs[0]) {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return next()
					}
				}
				d.set(func(d *hooked) { d.renew = renew })
				time.Sleep(40 * time.Second)
				for name, h := range hs {
					want := error(nil)
					if node(name) < 21 {
						want = holdfast.ErrLost
					}
					wantErr(t, h.Err(), want)
					_ = h.Unlock()
				}
			})
		}
	}
}

// TestF109_MixedTTLs checks that one lane with many TTLs loses no hold though
// every answer to a first renewal gets lost.
func TestF109_MixedTTLs(t *testing.T) {
	// The longest lease ends within 40 s, and is first renewed within 13 s.
	for n, lasts := range map[int]time.Duration{100: 40 * time.Second, 600: 13 * time.Second} {
		bubble(t, func(t *testing.T) {
			d := hook(memlock.NewStore())
			c := client(t, d)
			times := ttls(d)
			var hs []*holdfast.Hold
			for i := range n {
				hs = append(hs, must(t)(c.Mutex(fmt.Sprint(i), holdfast.WithTTL(times[i%len(times)])).Lock(bg)))
			}
			d.set(func(d *hooked) { d.renew = losesOnce(func(driver.Ref) bool { return false }) })
			time.Sleep(lasts)
			for _, h := range hs {
				wantErr(t, h.Err(), nil)
				unlock(t, h)
			}
		})
	}
}

// TestF109_LongLeaseInTheWay checks that neither a renewal of a long lease that
// hangs until its context ends, nor a clean-up, delays the renewal of a short
// lease.
func TestF109_LongLeaseInTheWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c := client(t, d)
		long := must(t)(c.Mutex("long", holdfast.WithTTL(12500*time.Millisecond)).Lock(bg))
		kept := func(ctx context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error) {
			for _, r := range refs {
				if r.Name == "long" || r.Name == "left" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
			}
			return next()
		}
		d.set(func(d *hooked) { d.renew, d.leave = kept, kept })
		time.Sleep(4 * time.Second) // until just before its renewal
		short := must(t)(c.Mutex("short", holdfast.WithTTL(time.Second)).Lock(bg))
		time.Sleep(3 * time.Second)
		if err := short.Err(); err != nil {
			t.Errorf("the short hold: %v", err)
		}
		unlock(t, short)

		left := must(t)(c.Mutex("left").Lock(bg))
		ended := make(chan struct{})
		go func() { _ = left.Unlock(); close(ended) }()
		<-ended // the release continues in the background, and hangs
		other := client(t, memlock.New(s))
		h := must(t)(other.Mutex("x", holdfast.WithTTL(time.Second)).Lock(bg))
		ctx, cancel := context.WithCancel(bg)
		done := locking(ctx, c.Mutex("x", holdfast.WithTTL(time.Second)))
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		cancel()
		wantErr(t, <-done, context.Canceled)
		synctest.Wait()
		if n := tickets(t, other, "x"); n != 1 {
			t.Errorf("%d tickets of x: its clean-up waits for another's", n)
		}
		unlock(t, h)
		_ = long.Unlock()
	})
}
