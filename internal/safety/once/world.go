package once

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// World describes hosts, their jobs, and what happens to them.
type World struct {
	Seed  uint64
	Open  func() (driver.Driver, error) // opens a client's driver; all use one store
	Names []string                      // of the jobs
	Hosts int
	Slots int           // of each job
	Every time.Duration // the length of a slot, by the hosts' clocks
	Skew  time.Duration // the hosts' clocks are wrong by at most that
	TTL   time.Duration

	// Speed is how fast the hosts' clocks run: 30 makes a slot of a minute every
	// 2 s. Zero means 1.
	Speed float64
	// Job returns how long a job runs.
	Job func(*rand.Rand) time.Duration
	// Faults is the mean time between two faults, of all hosts together; each is a
	// kill or a pause. Zero means none.
	Faults time.Duration
	// Down is the longest pause, and the longest time for which a killed host is
	// down.
	Down time.Duration
	// Latency is the longest delay of a request, and of its answer.
	Latency time.Duration
	// Aimed is the percentage of functions at which another fault is aimed while
	// they run, and of those at whose return one is.
	Aimed int

	impatient bool // for a test: a host does not repeat a call that failed
}

// run is one start of a job's function.
type run struct {
	name     string
	slot     time.Time
	host     int
	life     int // of the host
	began    time.Time
	ended    time.Time
	finished bool // it returned while its context was valid
	answered bool // Once returned without an error, and its host was alive
	done     holdfast.Done
}

// fault is a kill or a pause of a host.
type fault struct {
	kill     bool
	host     int
	life     int
	from, to time.Time // a kill has no end
}

// ask is one host's wish, in one of its lives, that a slot be done.
type ask struct {
	slotKey
	host, life int
	last       error // of a call after which it has to ask again
}

// answer is the result of a call of Once that did not run the function.
type answer struct {
	name string
	slot time.Time
	done holdfast.Done
	at   time.Time
}

// slowness is a time in which a host's request was not answered as quickly as a lease
// needs, or in which the whole machine did not run: then host is -1.
type slowness struct {
	host     int
	from, to time.Time
}

// record keeps the events of a world.
type record struct {
	mu      sync.Mutex
	begun   time.Time
	runs    []*run
	running map[*run]*host
	faults  []*fault
	late    []answer
	slow    []slowness
	asks    map[slotKey][]*ask
	dead    map[[2]int]bool // lives of hosts, by both numbers, that a kill ended
	errs    map[string]int  // by their kind, of calls that ran nothing and of openings
	old     []string        // slots that counted as done for their age
	wrong   []string

	background sync.WaitGroup // faults, and the ends of clients
}

func newRecord() *record {
	return &record{
		begun: time.Now(), running: make(map[*run]*host), errs: make(map[string]int),
		asks: make(map[slotKey][]*ask), dead: make(map[[2]int]bool),
	}
}

// ask records that a host asks for a slot in its present life.
func (r *record) ask(h *host, k slotKey) *ask {
	h.mu.Lock()
	a := &ask{slotKey: k, host: h.id, life: h.life}
	h.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks[k] = append(r.asks[k], a)
	return a
}

// killed records the end of a host's present life. The caller has locked the host.
func (r *record) killed(h *host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead[[2]int{h.id, h.life}] = true
}

// count counts an error after which a host tries again.
func (r *record) count(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[kindOf(err)]++
}

// kindOf returns the operation and the class of an error of a store, and the type
// of another one.
func kindOf(err error) string {
	if failed, ok := errors.AsType[*holdfast.StoreError](err); ok {
		return fmt.Sprintf("%s: %v", failed.Op, driver.ClassOf(failed.Err))
	}
	return fmt.Sprintf("%T", err)
}

func (r *record) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failLocked(format, args...)
}

func (r *record) failLocked(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// Run runs the world to its end.
func (w World) Run() (Report, error) {
	if w.Speed == 0 {
		w.Speed = 1
	}
	rec := newRecord()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hosts := make([]*host, w.Hosts)
	var live sync.WaitGroup
	for i := range hosts {
		rnd := rand.New(rand.NewPCG(w.Seed, uint64(i)+1))
		hosts[i] = &host{w: &w, rec: rec, id: i, rnd: rnd, dead: make(chan struct{}), open: make(map[slotKey]struct{})}
		if err := hosts[i].start(); err != nil {
			rec.fail("%v", err)
		}
	}
	rec.begun = time.Now() // the clocks start when all hosts have opened the store
	for _, h := range hosts {
		live.Go(h.live)
	}
	if w.Faults > 0 {
		rec.background.Go(func() { w.disturb(ctx, rec, hosts) })
	}
	rec.background.Go(func() { w.watchMachine(ctx, rec) })
	live.Wait()
	cancel()
	rec.background.Wait()
	for _, h := range hosts {
		h.end()
	}
	return rec.judge(&w)
}

// base is the start of the first slot, by a clock that is right.
var base = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

// clock returns the time by a clock of this world that is right. The world begins
// before the fastest clock reaches the first slot.
func (w *World) clock(rec *record) time.Time {
	return base.Add(-w.Skew - w.Every).Add(time.Duration(float64(time.Since(rec.begun)) * w.Speed))
}

// real returns a time of the hosts' clocks as real time.
func (w *World) real(d time.Duration) time.Duration { return time.Duration(float64(d) / w.Speed) }

// disturb kills and pauses hosts, half of the time one that runs a job.
func (w *World) disturb(ctx context.Context, rec *record, hosts []*host) {
	rnd := rand.New(rand.NewPCG(w.Seed, 0))
	for sleep(ctx, time.Duration(rnd.Float64()*2*float64(w.Faults))) {
		h := hosts[rnd.IntN(len(hosts))]
		if rnd.IntN(2) == 0 {
			rec.mu.Lock()
			for _, at := range rec.running { // any
				h = at
				break
			}
			rec.mu.Unlock()
		}
		h.disturb(rnd.IntN(2) == 0, h.downtime(rnd))
	}
}

// tooSlow returns the delay of a request, or of the machine, that excuses the loss of a
// lease: a renewal is tried for that long.
func (w *World) tooSlow() time.Duration { return w.TTL / 6 }

// watchMachine records when the machine did not run.
func (w *World) watchMachine(ctx context.Context, rec *record) {
	step := w.tooSlow() / 4
	for before := time.Now(); sleep(ctx, step); before = time.Now() {
		rec.noteSlow(-1, before, step+w.tooSlow())
	}
}

// noteSlow records that something that began at from has ended now, if it took longer
// than most.
func (r *record) noteSlow(host int, from time.Time, most time.Duration) {
	now := time.Now()
	if now.Sub(from) <= most {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = append(r.slow, slowness{host, from, now})
}

// sleep sleeps for d, and reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
