package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/answer"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// work runs the goroutines until the drain.
func (c *client) work(ctx context.Context) {
	done := make(chan struct{})
	var pulse, workers sync.WaitGroup
	pulse.Go(func() { c.pulse(done) })
	for g := range c.Goroutines {
		workers.Go(func() {
			rnd := rand.New(rand.NewPCG(c.Seed, uint64(c.P)<<40|uint64(c.K)<<16|uint64(g)+2))
			for {
				select {
				case <-c.drain:
					return
				case <-ctx.Done():
					return
				default:
					c.turn(ctx, rnd, g)
				}
			}
		})
	}
	workers.Wait()
	close(done)
	pulse.Wait()
}

// probe takes each name once, with all its units. If the store is slow, perhaps
// because its servers' machine is, the probe asks again until its time is over.
func (c *client) probe(ctx context.Context) {
	for _, name := range c.Names {
		began := checker.Now()
		e := checker.Event{What: checker.Probe, Name: name.Name}
		limit, stop := context.WithTimeout(ctx, c.Takes)
		h, err := c.take(limit, name, name.Limit, false)
		for answer.Class(err) == checker.ErrUnavailable && limit.Err() == nil {
			c.sleep(limit, beat)
			h, err = c.take(limit, name, name.Limit, false)
		}
		stop()
		e.Gap = checker.Now() - began
		if err == nil {
			err = h.Unlock()
		}
		if err != nil {
			e.Err, e.Text = answer.Class(err), err.Error()
		}
		c.write(e)
	}
}

// take asks for units of a name.
func (c *client) take(ctx context.Context, name wireName, units int64, try bool) (*holdfast.Hold, error) {
	switch {
	case name.Limit == 1 && try:
		return c.locks.Mutex(name.Name).TryLock(ctx)
	case name.Limit == 1:
		return c.locks.Mutex(name.Name).Lock(ctx)
	case name.Limit == driver.RWLimit && units == 1 && try:
		return c.locks.RWMutex(name.Name).TryRLock(ctx)
	case name.Limit == driver.RWLimit && units == 1:
		return c.locks.RWMutex(name.Name).RLock(ctx)
	case name.Limit == driver.RWLimit && try:
		return c.locks.RWMutex(name.Name).TryLock(ctx)
	case name.Limit == driver.RWLimit:
		return c.locks.RWMutex(name.Name).Lock(ctx)
	case try:
		return c.locks.Semaphore(name.Name, int(name.Limit)).TryAcquire(ctx, int(units))
	}
	return c.locks.Semaphore(name.Name, int(name.Limit)).Acquire(ctx, int(units))
}

// choose picks a name for a goroutine. Only the first goroutine of each process
// picks the name that is reserved for one goroutine.
func (c *client) choose(rnd *rand.Rand, g int) wireName {
	alone := c.Names[0].Alone
	if alone && g == 0 && (len(c.Names) == 1 || rnd.IntN(2) == 0) {
		return c.Names[0]
	}
	if alone && len(c.Names) > 1 {
		return c.Names[1+rnd.IntN(len(c.Names)-1)]
	}
	return c.Names[rnd.IntN(len(c.Names))]
}

// turn makes one call, and uses the hold.
func (c *client) turn(ctx context.Context, rnd *rand.Rand, g int) {
	name := c.choose(rnd, g)
	units := int64(1)
	switch {
	case name.Limit == driver.RWLimit && rnd.IntN(10) < 3:
		units = name.Limit
	case name.Limit == permits:
		units = int64(1 + rnd.IntN(permits))
	}
	n := c.calls.Add(1)
	e := checker.Event{What: checker.Ask, G: g, N: n, Name: name.Name, Units: units, Limit: name.Limit, Alone: name.Alone}
	limited, stop := ctx, context.CancelFunc(func() {})
	switch way := rnd.IntN(100); {
	case way < 15:
		e.Try = true
	case way < 30: // gives up soon
		e.Bound = true
		limited, stop = context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(20*time.Millisecond))))
	case way < 90:
		e.Bound = true
		limited, stop = context.WithTimeout(ctx, time.Duration((0.3+1.7*rnd.Float64())*float64(c.TTL)))
	}
	defer stop()
	if name.Alone {
		c.waiting.Store(name.Name, n)
	}
	c.write(e)
	h, err := c.take(limited, name, units, e.Try)
	if err != nil {
		if ctx.Err() == nil {
			c.write(checker.Event{What: checker.Failed, G: g, N: n, Err: answer.Class(err), Text: err.Error()})
		}
		if cl := answer.Class(err); cl != checker.ErrWait && !e.Bound { // spare the store
			c.sleep(ctx, time.Duration(rnd.Int64N(int64(20*time.Millisecond))))
		}
		return
	}
	c.hold(ctx, rnd, h, e)
}

func (c *client) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// claim returns the end of a hold's claim on the clock of the history. If the
// process stops between the readings of the two clocks, the result is too
// early, which accuses no holder wrongly.
func claim(h *holdfast.Hold) int64 {
	now := checker.Now()
	return now + int64(time.Until(h.Deadline()))
}

// holdTime returns a random time for a hold: usually very short, seldom longer
// than a lease.
func (c *client) holdTime(rnd *rand.Rand) time.Duration {
	switch n := rnd.IntN(1000); {
	case n < c.Long:
		return time.Duration((0.3 + rnd.Float64()) * float64(c.TTL))
	case n < 850:
		return time.Duration(rnd.Int64N(int64(2 * time.Millisecond)))
	default:
		return time.Duration(rnd.Int64N(int64(c.TTL) / 100))
	}
}

// hold uses a lock that is held: it accesses the register, nests, and waits.
func (c *client) hold(ctx context.Context, rnd *rand.Rand, h *holdfast.Hold, ask checker.Event) {
	n, token := ask.N, h.Token()
	last := claim(h)
	c.write(checker.Event{What: checker.Got, G: ask.G, N: n, Token: token, End: last})
	ended := make(chan struct{})
	context.AfterFunc(h.Context(), func() {
		defer close(ended)
		if lost, ok := errors.AsType[*holdfast.LostError](context.Cause(h.Context())); ok {
			c.lossesTold.Add(1)
			c.write(checker.Event{What: checker.Told, N: n, Token: lost.Token, Text: string(lost.Reason), End: claim(h)})
		}
	})
	// A holder that writes without a check of its lock shows the need for
	// tokens.
	looks := rnd.IntN(2) == 0
	var read order
	writes := c.Tokens && ask.Units == ask.Limit && (ask.Limit == 1 || ask.Limit == driver.RWLimit)
	if writes {
		read, writes = c.access(ctx, checker.Event{What: checker.Read, N: n, Name: ask.Name, Token: token})
		writes = writes && read.OK
	}
	if rnd.IntN(8) == 0 {
		c.nest(h, ask)
	}
	for end := time.Now().Add(c.holdTime(rnd)); ctx.Err() == nil; {
		rest := time.Until(end)
		if rest <= 0 {
			break
		}
		c.sleep(ctx, min(rest, 5*time.Millisecond))
		if h.Err() != nil {
			break
		}
		if now := claim(h); now-last > int64(c.TTL)/8 {
			last = now
			c.write(checker.Event{What: checker.Still, N: n, End: now})
		}
	}
	if writes && !(looks && h.Err() != nil) {
		c.access(ctx, checker.Event{What: checker.Write, N: n, Name: ask.Name, Token: token, Value: read.Val + 1, Twin: read.Twin + 1})
	}
	c.leave(h, n, ended)
}

// nest takes the held lock once more, for a moment, with the context of the
// hold.
func (c *client) nest(outer *holdfast.Hold, ask checker.Event) {
	e := ask
	e.N, e.In, e.Alone, e.Bound, e.Try = c.calls.Add(1), ask.N, false, true, false
	c.write(e)
	h, err := c.take(outer.Context(), wireName{Name: e.Name, Limit: e.Limit}, e.Units, false)
	if err != nil { // the hold is lost
		c.write(checker.Event{What: checker.Failed, G: e.G, N: e.N, Err: answer.Class(err), Text: err.Error()})
		return
	}
	c.write(checker.Event{What: checker.Got, G: e.G, N: e.N, Token: h.Token(), End: claim(h)})
	told := make(chan struct{})
	close(told) // a loss is reported with the outer hold
	c.leave(h, e.N, told)
}

// leave releases the lock, and waits until a loss has been reported.
func (c *client) leave(h *holdfast.Hold, n int64, told <-chan struct{}) {
	out := checker.Event{What: checker.Out, N: n}
	end := claim(h)
	if err := h.Err(); err != nil {
		out.Err = answer.Class(err)
	} else {
		out.End = end
	}
	c.write(out)
	done := checker.Event{What: checker.Done, N: n}
	if err := h.Unlock(); err != nil {
		done.Err, done.Text = answer.Class(err), err.Error()
		if errors.Is(err, holdfast.ErrLost) && !errors.Is(context.Cause(h.Context()), holdfast.ErrLost) {
			c.lossesTold.Add(1) // only the release found the loss
		}
	}
	<-told
	c.write(done)
}
