package holdfast_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// script records the order in which goroutines came in.
type script struct {
	mu  sync.Mutex
	log []string
}

func (s *script) say(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, what)
}

func (s *script) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, " ")
}

// TestReadersAndWritersInOrder checks that a reader does not pass a waiting
// writer, whoever holds.
func TestReadersAndWritersInOrder(t *testing.T) {
	for _, local := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			shared := client(t, memlock.New(s))
			var log script
			var wg sync.WaitGroup
			visit := func(what string, write bool) {
				c := shared
				if !local {
					c = client(t, memlock.New(s))
				}
				wg.Go(func() {
					rw := c.RWMutex("rw")
					var h *holdfast.Hold
					if write {
						h = must(t)(rw.Lock(bg))
					} else {
						h = must(t)(rw.RLock(bg))
					}
					log.say("+" + what)
					time.Sleep(time.Second)
					log.say("-" + what)
					unlock(t, h)
				})
				synctest.Wait()
				time.Sleep(11 * time.Millisecond) // the readers' ticket no longer admits others
			}
			visit("r1", false)
			visit("r2", false)
			visit("w1", true)
			visit("r3", false)
			visit("w2", true)
			wg.Wait()
			if got, want := log.String(), "+r1 +r2 -r1 -r2 +w1 -w1 +r3 -r3 +w2 -w2"; got != want {
				t.Errorf("local=%v: %s\nwant %s", local, got, want)
			}
			if n := tickets(t, shared, "rw"); n != 0 {
				t.Errorf("%d tickets stay", n)
			}
		})
	}
}

func TestReadersShareOneTicket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		var hs []*holdfast.Hold
		for range 100 {
			hs = append(hs, must(t)(c.RWMutex("rw").RLock(bg)))
		}
		if d.joins != 1 {
			t.Errorf("%d Joins for 100 readers at once", d.joins)
		}
		time.Sleep(time.Second) // the ticket no longer admits readers
		hs = append(hs, must(t)(c.RWMutex("rw").RLock(bg)))
		if d.joins != 2 {
			t.Errorf("%d Joins, want a second for a late reader", d.joins)
		}
		for _, h := range hs {
			unlock(t, h)
		}
		if d.leaves != 2 || tickets(t, c, "rw") != 0 {
			t.Errorf("%d Leaves, %d tickets stay", d.leaves, tickets(t, c, "rw"))
		}
	})
}

// TestF53_ReadersDoNotHog covers F53. It checks that readers of one client that
// keep coming do not keep a writer out.
func TestF53_ReadersDoNotHog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, w := client(t, memlock.New(s)), client(t, memlock.New(s))
		ctx, stop := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					h := must(t)(c.RWMutex("rw").RLock(bg))
					time.Sleep(3 * time.Millisecond)
					unlock(t, h)
				}
			})
			time.Sleep(time.Millisecond) // one of them is always inside
		}
		start := time.Now()
		h := must(t)(w.RWMutex("rw").Lock(bg))
		if got := time.Since(start); got > 20*time.Millisecond {
			t.Errorf("the writer waited %v", got)
		}
		stop()
		unlock(t, h)
		wg.Wait()
	})
}

// TestF53_HandOversAreBounded covers F53. It checks that local hand-offs are
// bounded in number and in time.
func TestF53_HandOversAreBounded(t *testing.T) {
	for _, work := range []time.Duration{0, time.Microsecond, 3 * time.Millisecond} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			var mu sync.Mutex
			runs, longest, waits := 0, 0, false // hog's holds while other has a place
			d := hook(s)
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				p, err := next()
				mu.Lock()
				runs, waits = 0, p.State == driver.Waiting
				mu.Unlock()
				return p, err
			}
			hog, other := client(t, memlock.New(s)), client(t, d)
			ctx, stop := context.WithCancel(bg)
			var wg sync.WaitGroup
			first := must(t)(hog.Mutex("a").Lock(bg))
			var last uint64
			for range 20 {
				wg.Go(func() {
					for ctx.Err() == nil {
						h := must(t)(hog.Mutex("a").Lock(bg))
						mu.Lock()
						if h.Token() <= last {
							t.Errorf("token %d after %d", h.Token(), last)
						}
						last = h.Token()
						if runs++; waits {
							longest = max(longest, runs)
						}
						mu.Unlock()
						time.Sleep(work)
						unlock(t, h)
					}
				})
			}
			synctest.Wait()
			unlock(t, first)
			for range 10 {
				start := time.Now()
				h := must(t)(other.Mutex("a").Lock(bg))
				mu.Lock()
				if h.Token() <= last {
					t.Errorf("token %d after %d", h.Token(), last)
				}
				last = h.Token()
				waits = false
				mu.Unlock()
				if got := time.Since(start); got > 14*time.Millisecond {
					t.Errorf("work %v: waited %v behind local hand-overs", work, got)
				}
				unlock(t, h)
			}
			stop()
			wg.Wait()
			if longest > 512 || longest < 3 {
				t.Errorf("work %v: %d holds of one client in a row", work, longest)
			}
		})
	}
}

// TestF53_ReadersOfOneGrantAreCounted covers F53. It checks that one grant admits its
// reader and 255 more of its client, whether they waited before it or come after it.
func TestF53_ReadersOfOneGrantAreCounted(t *testing.T) {
	for _, later := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			readers, first, second := client(t, memlock.New(s)), client(t, memlock.New(s)), client(t, memlock.New(s))
			var wg sync.WaitGroup
			var in atomic.Int32
			read := func() {
				wg.Go(func() {
					h := must(t)(readers.RWMutex("rw").RLock(bg))
					in.Add(1)
					time.Sleep(time.Second)
					unlock(t, h)
				})
			}
			h := must(t)(first.RWMutex("rw").Lock(bg))
			read()
			synctest.Wait() // its place is before that of the second writer
			wg.Go(func() { unlock(t, must(t)(second.RWMutex("rw").Lock(bg))) })
			synctest.Wait()
			if later {
				unlock(t, h)
				synctest.Wait()
			}
			for range 600 {
				read()
			}
			synctest.Wait()
			if !later {
				unlock(t, h)
				synctest.Wait()
			}
			if got := in.Load(); got != 256 {
				t.Errorf("later: %v: %d readers are in before a writer that waits, want 256", later, got)
			}
			wg.Wait()
		})
	}
}

func TestSemaphoreNeverExceedsItsSize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var mu sync.Mutex
		in, most := 0, 0
		var wg sync.WaitGroup
		for i := range 4 {
			c := client(t, memlock.New(s))
			for j := range 5 {
				n := 1 + (i+j)%3
				wg.Go(func() {
					for range 20 {
						err := c.Semaphore("s", 5).Do(bg, n, func(context.Context) error {
							mu.Lock()
							in += n
							most = max(most, in)
							mu.Unlock()
							time.Sleep(time.Millisecond)
							mu.Lock()
							in -= n
							mu.Unlock()
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		if most != 5 {
			t.Errorf("at most %d permits were out, want 5", most)
		}
	})
}

// TestSemaphoreWithinOneClient checks that goroutines of one client use permits
// side by side.
func TestSemaphoreWithinOneClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		sem := c.Semaphore("s", 4)
		var hs []*holdfast.Hold
		for range 4 {
			hs = append(hs, must(t)(sem.TryAcquire(bg, 1)))
		}
		_, err := sem.TryAcquire(bg, 1)
		wantErr(t, err, holdfast.ErrHeld)
		got := make(chan *holdfast.Hold, 4)
		for range 4 {
			go func() { got <- must(t)(sem.Acquire(bg, 1)) }()
		}
		synctest.Wait()
		for _, h := range slices.Clone(hs) {
			unlock(t, h)
		}
		for range 4 {
			unlock(t, <-got)
		}
		synctest.Wait() // a ticket that is not needed may have been in flight
		if n := tickets(t, c, "s"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}
