package once

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// errKilled is the error of a function whose host was killed.
var errKilled = errors.New("the host was killed")

// errInvoice is the error of a function that fails; its slot is done.
var errInvoice = errors.New("half an invoice run")

// host is one machine: a client, and a clock that is wrong.
type host struct {
	w   *World
	rec *record
	id  int
	rnd *rand.Rand // of live alone

	calls sync.WaitGroup // of Once

	mu     sync.Mutex
	open   map[slotKey]struct{} // asked for, and not answered
	life   int
	skew   time.Duration
	client *holdfast.Client
	link   *link
	dead   chan struct{}      // closed when this life ends
	revive chan time.Duration // of a dead host: after that time
}

// start begins a life. While the store is unavailable, it opens it again, as a
// service that starts with its machine does.
func (h *host) start() error {
	d, err := h.w.Open()
	for err != nil && driver.ClassOf(err) != driver.Refused {
		h.rec.count(err)
		time.Sleep(time.Second)
		d, err = h.w.Open()
	}
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	l, err := newLink(d, h.w.Latency, func(from time.Time) { h.rec.noteSlow(h.id, from, h.w.tooSlow()) })
	if err != nil {
		return err
	}
	c, err := holdfast.New(l, holdfast.WithTTL(h.w.TTL), holdfast.WithNote(fmt.Sprint("host ", h.id)), holdfast.WithObserver(&holdfast.Observer{
		BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) {
			if e.Op == "once" {
				h.rec.mu.Lock()
				h.rec.old = append(h.rec.old, e.Err.Error())
				h.rec.mu.Unlock()
			}
		},
	}))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life++
	h.skew = time.Duration((2*h.rnd.Float64() - 1) * float64(h.w.Skew))
	h.client, h.link = c, l
	h.dead, h.revive = make(chan struct{}), make(chan time.Duration, 1)
	return nil
}

// live starts each slot of each job when the host's clock says so. A host that
// was killed misses the slots until it is started again; then it asks again for
// those of which it had no answer.
func (h *host) live() {
	for {
		h.mu.Lock()
		c, skew, dead, revive := h.client, h.skew, h.dead, h.revive
		h.mu.Unlock()
		if c == nil {
			return
		}
		h.askAgain(c, dead)
		h.serve(c, skew, dead)
		h.calls.Wait()
		if !isClosed(dead) {
			return
		}
		time.Sleep(<-revive)
		if err := h.start(); err != nil {
			h.rec.fail("host %d: %v", h.id, err)
			return
		}
	}
}

// askAgain calls Once for what an earlier life of the host had asked: for the slots of
// each job one after the other, as all at once would keep a slow store from answering
// any.
func (h *host) askAgain(c *holdfast.Client, dead chan struct{}) {
	h.mu.Lock()
	open := slices.SortedFunc(maps.Keys(h.open), func(a, b slotKey) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), strings.Compare(a.name, b.name))
	})
	h.mu.Unlock()
	jobs := make(map[string][]slotKey)
	for _, k := range open {
		jobs[k.name] = append(jobs[k.name], k)
	}
	for _, name := range h.w.Names {
		rnd := rand.New(rand.NewPCG(h.rnd.Uint64(), 1))
		h.calls.Go(func() {
			for _, k := range jobs[name] {
				h.ask(c, dead, k, rnd)
			}
		})
	}
}

// serve starts the slots that are still to come in this life.
func (h *host) serve(c *holdfast.Client, skew time.Duration, dead chan struct{}) {
	w := h.w
	first := int(w.clock(h.rec).Add(skew).Sub(base)/w.Every) + 1
	for i := max(first, 0); i < w.Slots; i++ {
		// Timers are late, and sometimes early.
		jitter := time.Duration((h.rnd.Float64()*0.09 - 0.04) * float64(w.Every))
		at := base.Add(time.Duration(i)*w.Every + jitter - skew)
		timer := time.NewTimer(w.real(at.Sub(w.clock(h.rec))))
		select {
		case <-timer.C:
		case <-dead:
			timer.Stop()
			return
		}
		slot := holdfast.Slot(at.Add(skew), w.Every)
		for _, name := range w.Names {
			seed, k := h.rnd.Uint64(), slotKey{name, slot.UnixNano()}
			h.mu.Lock()
			h.open[k] = struct{}{}
			h.mu.Unlock()
			h.calls.Go(func() { h.ask(c, dead, k, rand.New(rand.NewPCG(seed, 1))) })
		}
	}
}

// ask calls Once for a slot, and again while the store is unavailable or the
// function was ended before it had finished.
func (h *host) ask(c *holdfast.Client, dead chan struct{}, k slotKey, rnd *rand.Rand) {
	slot := time.Unix(0, k.slot).UTC()
	a := h.rec.ask(h, k)
	for {
		var mine *run
		done, err := c.Once(context.Background(), k.name, slot, func(ctx context.Context) error {
			mine = h.begin(k.name, slot)
			return h.job(ctx, dead, mine, rnd)
		})
		if !h.hear(a, mine, done, err, isClosed(dead)) || h.w.impatient {
			return
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-dead:
			timer.Stop()
			return
		}
	}
}

// hear records the result of a call, and reports whether the host has to ask
// again.
func (h *host) hear(a *ask, mine *run, done holdfast.Done, err error, dead bool) (again bool) {
	if dead { // the process has ended: nobody hears of it
		return false
	}
	rec := h.rec
	rec.mu.Lock()
	switch {
	case mine != nil:
		mine.answered = mine.finished && (err == nil || err == errInvoice)
		mine.done = done
		again = !mine.finished
	case err == nil:
		rec.late = append(rec.late, answer{a.name, time.Unix(0, a.slot).UTC(), done, time.Now()})
	default:
		again = true
		rec.errs[kindOf(err)]++
	}
	if again {
		a.last = err
	}
	rec.mu.Unlock()
	if !again {
		h.mu.Lock()
		delete(h.open, a.slotKey)
		h.mu.Unlock()
	}
	return again
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (h *host) begin(name string, slot time.Time) *run {
	h.mu.Lock()
	life := h.life
	h.mu.Unlock()
	h.rec.mu.Lock()
	defer h.rec.mu.Unlock()
	r := &run{name: name, slot: slot, host: h.id, life: life, began: time.Now()}
	h.rec.runs = append(h.rec.runs, r)
	h.rec.running[r] = h
	return r
}

// job works, and notices at the end whether it may still do so.
func (h *host) job(ctx context.Context, dead chan struct{}, mine *run, rnd *rand.Rand) error {
	length := h.w.Job(rnd)
	timer := time.NewTimer(length)
	defer timer.Stop()
	if rnd.IntN(100) < h.w.Aimed {
		h.aim(rnd, time.Duration(rnd.Float64()*float64(length)))
	}
	stubborn := rnd.IntN(4) == 0 // looks at its context at the end only
	end := ctx.Done()
	if stubborn {
		end = nil
	}
	select {
	case <-timer.C:
	case <-end:
	case <-dead:
	}
	h.rec.mu.Lock()
	mine.ended = time.Now()
	mine.finished = !isClosed(dead) && ctx.Err() == nil
	finished := mine.finished
	delete(h.rec.running, mine)
	h.rec.mu.Unlock()
	switch {
	case isClosed(dead):
		return errKilled
	case !finished:
		return errors.Join(holdfast.ErrNotDone, context.Cause(ctx))
	case rnd.IntN(100) < h.w.Aimed:
		h.aim(rnd, time.Duration(rnd.Float64()*4*float64(h.w.Latency)))
	}
	if rnd.IntN(20) == 0 {
		return errInvoice
	}
	return nil
}

// aim disturbs the host after that time.
func (h *host) aim(rnd *rand.Rand, after time.Duration) {
	kill, length := rnd.IntN(2) == 0, h.downtime(rnd)
	h.rec.background.Go(func() {
		time.Sleep(after)
		h.disturb(kill, length)
	})
}

// downtime returns how long a fault lasts.
func (h *host) downtime(rnd *rand.Rand) time.Duration {
	return time.Duration(rnd.Float64() * float64(h.w.Down))
}

// disturb kills the host, or pauses it for that long.
func (h *host) disturb(kill bool, length time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.client == nil || isClosed(h.dead) {
		return
	}
	f := &fault{kill: kill, host: h.id, life: h.life, from: time.Now()}
	h.rec.mu.Lock()
	h.rec.faults = append(h.rec.faults, f)
	h.rec.mu.Unlock()
	resume := h.link.down.Shut()
	if !kill {
		h.rec.background.Go(func() {
			time.Sleep(length)
			h.rec.mu.Lock()
			f.to = time.Now()
			h.rec.mu.Unlock()
			resume()
		})
		return
	}
	h.rec.killed(h)
	close(h.dead)
	h.revive <- length
	c := h.client
	h.rec.background.Go(func() { _ = c.Close() }) // sends nothing any more; frees what the process had
}

// end ends the last life.
func (h *host) end() {
	h.mu.Lock()
	c := h.client
	h.mu.Unlock()
	if c == nil {
		return
	}
	if err := c.Close(); err != nil && !isClosed(h.dead) {
		h.rec.fail("host %d: Close: %v", h.id, err)
	}
}
