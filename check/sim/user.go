package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/check"
	"github.com/holdfast-go/holdfast/check/answer"
	"github.com/holdfast-go/holdfast/driver"
)

// user is what uses one client.
type user struct {
	r       *run
	client  int
	ctx     context.Context // ends when the client dies
	locks   *holdfast.Client
	number  atomic.Int64 // of calls
	waiting atomic.Int64 // the call of the one goroutine that uses the mutex
}

func (u *user) observer() *holdfast.Observer {
	return &holdfast.Observer{
		Waiting: func(name string, _ holdfast.Holder) {
			if n := u.waiting.Load(); name == lockNames[0].name && n > 0 {
				u.r.add(u.client, check.Event{What: check.Wait, N: n})
			}
		},
		Lost: func(err *holdfast.LostError) {
			u.r.add(u.client, check.Event{What: check.Notice, Name: err.Name, Token: err.Token})
		},
		Trouble: func(error) { u.r.upset(u.client) },
	}
}

// work is one goroutine.
func (u *user) work(g int) {
	rnd := rand.New(rand.NewPCG(u.r.Seed, uint64(u.client)<<8|uint64(g)|1<<32))
	for range u.r.Calls {
		if time.Sleep(u.some(rnd)); u.ctx.Err() != nil {
			return
		}
		u.turn(rnd, g)
	}
}

// some is a time: mostly of the length of a few requests, sometimes of a lease.
func (u *user) some(rnd *rand.Rand) time.Duration {
	most := float64(u.r.Slow[u.client]) + float64(time.Millisecond)
	switch n := rnd.IntN(10); {
	case n < 3:
		most = 1.5 * float64(u.r.TTL)
	case n < 5:
		most = 0.2 * float64(u.r.TTL)
	}
	return time.Duration(rnd.Float64() * most)
}

// endless is how many TTLs a wait lasts that has no end: long after everybody
// else has gone.
const endless = 100

// take asks for units of a name.
func take(ctx context.Context, l *holdfast.Client, n lockName, units int64, try bool) (*holdfast.Hold, error) {
	type way struct {
		lock, try func(context.Context) (*holdfast.Hold, error)
	}
	var w way
	switch {
	case n.limit == 1:
		m := l.Mutex(n.name)
		w = way{m.Lock, m.TryLock}
	case n.limit == driver.RWLimit && units == 1:
		m := l.RWMutex(n.name)
		w = way{m.RLock, m.TryRLock}
	case n.limit == driver.RWLimit:
		m := l.RWMutex(n.name)
		w = way{m.Lock, m.TryLock}
	case try:
		return l.Semaphore(n.name, int(n.limit)).TryAcquire(ctx, int(units))
	default:
		return l.Semaphore(n.name, int(n.limit)).Acquire(ctx, int(units))
	}
	if try {
		return w.try(ctx)
	}
	return w.lock(ctx)
}

// turn is one call, and what is done with the hold.
func (u *user) turn(rnd *rand.Rand, g int) {
	n := u.r.names[rnd.IntN(len(u.r.names))]
	if g > 0 && len(u.r.names) > 1 { // the mutex is for one goroutine of each client: order is judged
		n = u.r.names[1+rnd.IntN(len(u.r.names)-1)]
	}
	units := int64(1)
	switch {
	case n.limit == driver.RWLimit && rnd.IntN(2) == 0:
		units = n.limit
	case n.limit == permits:
		units = int64(1 + rnd.IntN(permits))
	}
	e := check.Event{What: check.Ask, G: g, N: u.number.Add(1), Name: n.name, Units: units, Limit: n.limit,
		Alone: n.limit == 1 && (g == 0 && len(u.r.names) > 1 || u.r.Goroutines == 1)}
	limit := endless * u.r.TTL
	switch rnd.IntN(6) {
	case 0:
		e.Try = true
	case 1, 2:
		e.Bound = true
		limit = u.some(rnd)
	}
	ctx, stop := context.WithTimeout(u.ctx, limit)
	defer stop()
	if e.Alone {
		u.waiting.Store(e.N)
	}
	u.r.add(u.client, e)
	u.r.count()
	h, err := take(ctx, u.locks, n, units, e.Try)
	if err != nil {
		u.r.add(u.client, check.Event{What: check.Failed, G: g, N: e.N, Err: answer.Class(err), Text: err.Error()})
		return
	}
	u.hold(rnd, h, e)
}

func (r *run) count() {
	r.mu.Lock()
	r.calls++
	r.mu.Unlock()
}

// claim is the end of a hold's claim in the time of histories.
func (u *user) claim(h *holdfast.Hold) int64 { return u.r.now() + int64(time.Until(h.Deadline())) }

// hold is what a user does with a lock.
func (u *user) hold(rnd *rand.Rand, h *holdfast.Hold, ask check.Event) {
	n, token := ask.N, h.Token()
	u.r.add(u.client, check.Event{What: check.Got, G: ask.G, N: n, Token: token, End: u.claim(h)})
	ended := make(chan struct{})
	context.AfterFunc(h.Context(), func() {
		defer close(ended)
		if lost, ok := errors.AsType[*holdfast.LostError](context.Cause(h.Context())); ok {
			u.r.add(u.client, check.Event{What: check.Told, N: n, Token: lost.Token, Text: string(lost.Reason), End: u.claim(h)})
		}
	})
	// One who writes without a look whether it still holds is the one that
	// tokens are for.
	looks := rnd.IntN(2) == 0
	writes := ask.Units == ask.Limit
	var read check.Answer
	if writes {
		time.Sleep(1 + time.Duration(rnd.Int64N(int64(time.Millisecond)))) // the resource is not here
		read = u.access(check.Event{What: check.Read, N: n, Name: ask.Name, Token: token})
		writes = read.OK
	}
	if rnd.IntN(6) == 0 {
		u.nest(rnd, h, ask)
	}
	long := u.some(rnd)
	if rnd.IntN(6) == 0 { // often until it is lost
		long = 4 * u.r.TTL
	}
	for end := u.r.since() + long; ; {
		rest := end - u.r.since()
		if rest <= 0 || looks && h.Err() != nil {
			break
		}
		time.Sleep(min(rest, u.r.TTL/8))
		if h.Err() == nil {
			u.r.add(u.client, check.Event{What: check.Still, N: n, End: u.claim(h)})
		}
	}
	if writes && !(looks && h.Err() != nil) {
		u.access(check.Event{What: check.Write, N: n, Name: ask.Name, Token: token, Value: read.Value + 1, Twin: read.Twin + 1})
	}
	u.leave(h, n, ended)
}

// nest takes what is held once more, for a while, by the context of the hold.
func (u *user) nest(rnd *rand.Rand, outer *holdfast.Hold, ask check.Event) {
	e := ask
	e.N, e.In, e.Alone, e.Bound, e.Try = u.number.Add(1), ask.N, false, true, false
	u.r.add(u.client, e)
	h, err := take(outer.Context(), u.locks, lockName{e.Name, e.Limit}, e.Units, false)
	if err != nil { // the hold is lost
		u.r.add(u.client, check.Event{What: check.Failed, G: e.G, N: e.N, Err: answer.Class(err), Text: err.Error()})
		return
	}
	u.r.add(u.client, check.Event{What: check.Got, G: e.G, N: e.N, Token: h.Token(), End: u.claim(h)})
	time.Sleep(u.some(rnd))
	told := make(chan struct{})
	close(told) // a loss is told with the first hold
	u.leave(h, e.N, told)
}

// leave releases, and waits until a loss has been told.
func (u *user) leave(h *holdfast.Hold, n int64, told <-chan struct{}) {
	out, end := check.Event{What: check.Out, N: n}, u.claim(h)
	if err := h.Err(); err != nil {
		out.Err = answer.Class(err)
	} else {
		out.End = end
	}
	u.r.add(u.client, out)
	done := check.Event{What: check.Done, N: n}
	if err := h.Unlock(); err != nil {
		done.Err, done.Text = answer.Class(err), err.Error()
	}
	<-told
	u.r.add(u.client, done)
}

// access is an access to what the lock protects.
func (u *user) access(e check.Event) check.Answer {
	key := check.Key{P: u.client, N: e.N}
	u.r.mu.Lock()
	defer u.r.mu.Unlock()
	if u.r.dead(u.client, u.r.since()) {
		return check.Answer{}
	}
	var a check.Answer
	if e.What == check.Read {
		a = u.r.reg.Read(e.Name, e.Token, key)
	} else {
		a = u.r.reg.Write(e.Name, e.Token, key, e.Value, e.Twin)
	}
	e.T, e.P, e.OK = u.r.now(), u.client, a.OK
	u.r.checker.Add(e)
	return a
}
