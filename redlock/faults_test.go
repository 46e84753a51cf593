package redlock

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

const ttl = 4 * time.Second

var randomWorlds = flag.Int("redlock.worlds", 5, "how many worlds TestRandomWorlds plays")

// minorityFaults are the faults of a minority of nodes, each with functions
// that begin and end it.
var minorityFaults = []struct {
	name       string
	begin, end func(s *store)
	client     func(w *wire) (heal func()) // cuts off one client alone
}{
	{name: "silent", begin: func(s *store) { s.Shut() }, end: func(s *store) { s.Open() }},
	{name: "dead", begin: func(s *store) { s.dead.Store(true) }, end: func(s *store) { s.dead.Store(false) }},
	{name: "slow", begin: func(s *store) { s.slow.Store(int64(300 * time.Millisecond)) }, end: func(s *store) { s.slow.Store(0) }},
	{name: "restarted empty", begin: func(s *store) { s.restart(ttl) }, end: func(*store) {}},
	{name: "cut off from one client", client: func(w *wire) func() { return w.own.Shut() }},
}

// TestF41_FaultyMinorityChangesNothing checks, for each fault of a minority of
// nodes, clients that take turns: one holds at a time, tokens grow, and every
// client comes to its turn.
func TestF41_FaultyMinorityChangesNothing(t *testing.T) {
	for n, away := range map[int]int{3: 1, 5: 2} {
		for _, f := range minorityFaults {
			t.Run(fmt.Sprintf("%s %d of %d", f.name, away, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(n)
					for _, s := range w.nodes {
						s.slow.Store(int64(2 * time.Millisecond))
					}
					var r record
					ctx, cancel := context.WithCancel(t.Context())
					var wg sync.WaitGroup
					var first *Driver
					for i := range 3 {
						c, d := w.client(t, ttl)
						if first == nil {
							first = d
						}
						wg.Go(func() {
							for ctx.Err() == nil {
								r.turn(t, ctx, fmt.Sprint("client ", i), c, "n", 50*time.Millisecond)
							}
						})
					}
					progress := func(what string) {
						t.Helper()
						r.mu.Lock()
						before := r.count
						r.mu.Unlock()
						time.Sleep(ttl)
						r.mu.Lock()
						defer r.mu.Unlock()
						if r.count-before < 5 {
							t.Errorf("%s: %d turns in %v", what, r.count-before, ttl)
						}
					}
					progress("before")
					var heal []func()
					for i := range away {
						if f.client != nil {
							heal = append(heal, f.client(wireTo(first, i)))
							continue
						}
						f.begin(w.nodes[i])
						heal = append(heal, func() { f.end(w.nodes[i]) })
					}
					progress("meanwhile")
					for _, h := range heal {
						h()
					}
					progress("afterwards")
					cancel()
					wg.Wait()
					time.Sleep(2 * ttl) // late requests are cleaned up
					for i, s := range w.nodes {
						l, err := memlock.New(s.Store).Inspect(context.Background(), "n")
						if err != nil || len(l.Tickets) > 0 {
							t.Errorf("node %d has %d tickets left: %v", i+1, len(l.Tickets), err)
						}
					}
				})
			})
		}
	}
}

// TestRandomWorlds plays random faults, at random nodes, for random times, on
// nodes whose clocks differ. Only a minority loses its data.
func TestRandomWorlds(t *testing.T) {
	worlds := *randomWorlds
	turns := 0
	for seed := range worlds {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 1))
			n := 3 + 2*rnd.IntN(2)
			w := newWorld(n)
			for _, s := range w.nodes {
				s.slow.Store(rnd.Int64N(int64(20 * time.Millisecond)))
				s.StepClock(time.Duration(rnd.Int64N(int64(ttl / 2))))
			}
			var r record
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var drivers []*Driver
			for i := range 3 {
				c, d := w.client(t, ttl)
				drivers = append(drivers, d)
				work := time.Duration(rnd.Int64N(int64(400 * time.Millisecond)))
				wg.Go(func() {
					for ctx.Err() == nil {
						wait, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(2*ttl))))
						r.turn(t, wait, fmt.Sprint("client ", i), c, "n", work)
						cancel()
					}
				})
			}
			for range 30 {
				at := rnd.IntN(n)
				s := w.nodes[at]
				heal := func() {}
				switch kind := rnd.IntN(5); {
				case kind == 0:
					heal = s.Shut()
				case kind == 1:
					s.dead.Store(true)
					heal = func() { s.dead.Store(false) }
				case kind == 2:
					wi := wireTo(drivers[rnd.IntN(len(drivers))], at)
					heal = wi.own.Shut()
				case kind == 3 && at < (n-1)/2:
					s.restart(ttl)
				default:
					was := s.slow.Swap(int64(time.Second))
					heal = func() { s.slow.Store(was) }
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(ttl))))
				if rnd.IntN(4) > 0 {
					heal()
				} else {
					wg.Go(func() { // this fault overlaps with the next
						time.Sleep(time.Duration(rand.Int64N(int64(ttl))))
						heal()
					})
				}
			}
			time.Sleep(2 * ttl)
			r.mu.Lock()
			before := r.count
			r.mu.Unlock()
			time.Sleep(3 * ttl)
			cancel()
			wg.Wait()
			if r.count == before {
				t.Errorf("seed %d: after all faults, nobody came to a turn", seed)
			}
			turns += r.count
		})
	}
	t.Logf("%d turns in %d worlds", turns, worlds)
}

// TestF3_LateVote checks that a request for a vote that arrives long after its
// client gave up finds that the ticket has left.
func TestF3_LateVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		plan, err := faults.Parse("join: hold request 3s")
		if err != nil {
			t.Fatal(err)
		}
		nodes := w.drivers()
		late := faults.Wrap(nodes[2], plan)
		nodes[2] = late
		d, err := New(nodes, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := clientOf(t, d, ttl)
		h, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if met := late.Applied(); met[0] == 0 {
			t.Error("no request was late")
		}
		l, err := memlock.New(w.nodes[2].Store).Inspect(context.Background(), "n")
		if err != nil || len(l.Tickets) > 0 {
			t.Errorf("the late vote stays: %+v, %v", l.Tickets, err)
		}
	})
}

// TestF43_VotesDoNotErode restarts nodes without their data, one after the
// other. It checks that the hold survives with its token, because the nodes
// give it the lost votes again.
func TestF43_VotesDoNotErode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		c, _ := w.client(t, ttl)
		h, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token := h.Token()
		for range 2 {
			for _, s := range w.nodes {
				s.restart(ttl)
				time.Sleep(2 * ttl)
			}
		}
		if err := h.Err(); err != nil || h.Token() != token {
			t.Errorf("after all nodes have restarted: %v, token %d was %d", err, h.Token(), token)
		}
		if err := h.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// TestF22_StalledMinorityAddsNothing checks that a node that hangs adds nothing
// to a lock or its release, once the driver knows of it.
//
// Covers: F21.
func TestF22_StalledMinorityAddsNothing(t *testing.T) {
	for hung := range 3 { // one of them is the lock's home
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			c, _ := w.client(t, ttl)
			lock := func() {
				h, err := c.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Unlock(); err != nil {
					t.Fatal(err)
				}
			}
			lock()
			// By now all nodes are watched. None still has the first lock's vote: a node
			// that has it refuses the next one, which then needs the node that hangs.
			synctest.Wait()
			w.nodes[hung].Shut()
			slowest := 0
			for i := range 100 {
				begun := time.Now()
				lock()
				if took := time.Since(begun); took > 0 { // in the bubble's time, work takes no time
					slowest++
					if took > 3*maxNodeWait {
						t.Errorf("node %d hangs: lock %d took %v", hung+1, i, took)
					}
				}
			}
			if slowest > 2 {
				t.Errorf("%d of 100 locks waited for the node that hangs", slowest)
			}
			w.nodes[hung].Open()
		})
	}
}

// TestF41_ContendersDoNotSplitVotes checks that equal contenders do not take
// votes from each other for long.
func TestF41_ContendersDoNotSplitVotes(t *testing.T) {
	for _, clients := range []int{2, 8, 32} {
		for _, away := range []int{0, 1} {
			t.Run(fmt.Sprintf("%d clients, %d of 3 down", clients, away), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(3)
					for _, s := range w.nodes {
						s.slow.Store(int64(time.Millisecond))
					}
					for _, s := range w.nodes[:away] {
						s.dead.Store(true)
					}
					var r record
					var wg sync.WaitGroup
					var drivers []*Driver
					for i := range clients {
						c, d := w.client(t, ttl)
						drivers = append(drivers, d)
						wg.Go(func() {
							for range 20 {
								if !r.turn(t, t.Context(), fmt.Sprint(i), c, "n", time.Millisecond) {
									t.Error("no turn")
								}
							}
						})
					}
					begun := time.Now()
					wg.Wait()
					var rounds, grants int64
					for _, d := range drivers {
						rounds += d.rounds.Load()
						grants += d.grants.Load()
					}
					per := float64(rounds) / float64(grants)
					t.Logf("%d acquisitions, %.2f tries for the majority each, %v each", grants, per, time.Since(begun)/time.Duration(grants))
					// A first try puts a waiter in the queue, and a second one
					// wins.
					if per > 6 {
						t.Errorf("%.2f tries for each acquisition", per)
					}
				})
			})
		}
	}
}
