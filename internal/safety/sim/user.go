package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/answer"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// user is the user of one client.
type user struct {
	r       *run
	client  int
	ctx     context.Context // ends when the client dies
	locks   *holdfast.Client
	number  atomic.Int64 // of calls
	waiting atomic.Int64 // the call of the only goroutine that uses the mutex
	seen    observations
	witness Witness // nil for none
}

// work is the work of one goroutine.
func (u *user) work(g int) {
	rnd := rand.New(rand.NewPCG(u.r.Seed, uint64(u.client)<<8|uint64(g)|1<<32))
	for range u.r.Calls {
		if time.Sleep(u.randomTime(rnd)); u.ctx.Err() != nil {
			return
		}
		if len(u.r.Endings) == 0 {
			u.turn(rnd, g)
		} else if !u.doTurn(rnd, g) {
			return
		}
	}
}

// randomTime returns a random time: usually of the length of a few requests,
// sometimes of a lease.
func (u *user) randomTime(rnd *rand.Rand) time.Duration {
	most := float64(u.r.Slow[u.client]) + float64(time.Millisecond)
	switch n := rnd.IntN(10); {
	case n < 3:
		most = 1.5 * float64(u.r.TTL)
	case n < 5:
		most = 0.2 * float64(u.r.TTL)
	}
	return time.Duration(rnd.Float64() * most)
}

// endless is the number of TTLs that a wait without an end lasts: it ends long
// after all other work.
const endless = 100

// take asks for units of a name.
func take(ctx context.Context, l *holdfast.Client, n lockName, units int64, try bool, with ...holdfast.Option) (*holdfast.Hold, error) {
	type way struct {
		lock, try func(context.Context) (*holdfast.Hold, error)
	}
	var w way
	switch {
	case n.limit == 1:
		m := l.Mutex(n.name, with...)
		w = way{m.Lock, m.TryLock}
	case n.limit == driver.RWLimit && units == 1:
		m := l.RWMutex(n.name, with...)
		w = way{m.RLock, m.TryRLock}
	case n.limit == driver.RWLimit:
		m := l.RWMutex(n.name, with...)
		w = way{m.Lock, m.TryLock}
	case try:
		return l.Semaphore(n.name, int(n.limit), with...).TryAcquire(ctx, int(units))
	default:
		return l.Semaphore(n.name, int(n.limit), with...).Acquire(ctx, int(units))
	}
	if try {
		return w.try(ctx)
	}
	return w.lock(ctx)
}

// nextAsk returns the event of the next call.
func (u *user) nextAsk(rnd *rand.Rand, g int) checker.Event {
	n := u.r.names[rnd.IntN(len(u.r.names))]
	if g > 0 && len(u.r.names) > 1 { // only one goroutine of each client uses the mutex, so that its order is judged
		n = u.r.names[1+rnd.IntN(len(u.r.names)-1)]
	}
	units := int64(1)
	switch {
	case n.limit == driver.RWLimit && rnd.IntN(2) == 0:
		units = n.limit
	case n.limit == permits:
		units = int64(1 + rnd.IntN(permits))
	}
	return checker.Event{What: checker.Ask, G: g, N: u.number.Add(1), Name: n.name, Units: units, Limit: n.limit,
		Alone: n.limit == 1 && (g == 0 && len(u.r.names) > 1 || u.r.Goroutines == 1)}
}

// turn makes one call, and uses the hold.
func (u *user) turn(rnd *rand.Rand, g int) {
	e := u.nextAsk(rnd, g)
	n, units := lockName{e.Name, e.Limit}, e.Units
	limit := endless * u.r.TTL
	switch rnd.IntN(6) {
	case 0:
		e.Try = true
	case 1, 2:
		e.Bound = true
		limit = u.randomTime(rnd)
	}
	ctx, stop := context.WithTimeout(u.ctx, limit)
	defer stop()
	if e.Alone {
		u.waiting.Store(e.N)
	}
	u.r.add(u.client, e)
	u.r.count()
	u.seen.ask()
	h, err := take(ctx, u.locks, n, units, e.Try, u.options(n)...)
	if err != nil {
		u.r.add(u.client, checker.Event{What: checker.Failed, G: g, N: e.N, Err: answer.Class(err), Text: err.Error()})
		return
	}
	u.hold(rnd, h, e)
}

// options returns what the client's locks have. A semaphore has no named owners.
func (u *user) options(n lockName) []holdfast.Option {
	if u.client >= len(u.r.Owners) || u.r.Owners[u.client] == "" || n.limit == permits {
		return nil
	}
	return []holdfast.Option{holdfast.WithOwner(u.r.Owners[u.client])}
}

func (r *run) count() {
	r.mu.Lock()
	r.calls++
	r.mu.Unlock()
}

// claim returns the end of a hold's claim in the time of histories.
func (u *user) claim(h *holdfast.Hold) int64 { return u.r.now() + int64(time.Until(h.Deadline())) }

// hold uses a lock that is held: it accesses the register, nests, and waits.
func (u *user) hold(rnd *rand.Rand, h *holdfast.Hold, ask checker.Event) {
	n, token := ask.N, h.Token()
	if u.witness != nil {
		u.witness.Got(h)
	}
	u.r.add(u.client, checker.Event{What: checker.Got, G: ask.G, N: n, Token: token, End: u.claim(h)})
	ended := make(chan struct{})
	context.AfterFunc(h.Context(), func() {
		defer close(ended)
		if lost, ok := errors.AsType[*holdfast.LostError](context.Cause(h.Context())); ok {
			if u.witness != nil {
				u.witness.Told(h, lost)
			}
			u.r.add(u.client, checker.Event{What: checker.Told, N: n, Token: lost.Token, Text: string(lost.Reason), End: u.claim(h)})
		}
	})
	// A holder that writes without a check of its lock shows the need for
	// tokens.
	looks := rnd.IntN(2) == 0
	writes := ask.Units == ask.Limit
	var read checker.Answer
	if writes {
		time.Sleep(1 + time.Duration(rnd.Int64N(int64(time.Millisecond)))) // the way to the resource takes time
		read = u.access(checker.Event{What: checker.Read, N: n, Name: ask.Name, Token: token})
		writes = read.OK
	}
	if rnd.IntN(6) == 0 {
		u.nest(rnd, h, ask)
	}
	long := u.randomTime(rnd)
	if rnd.IntN(6) == 0 { // often until the loss
		long = 4 * u.r.TTL
	}
	for end := u.r.since() + long; ; {
		rest := end - u.r.since()
		if rest <= 0 || looks && h.Err() != nil {
			break
		}
		time.Sleep(min(rest, u.r.TTL/8))
		if h.Err() == nil {
			u.r.add(u.client, checker.Event{What: checker.Still, N: n, End: u.claim(h)})
		}
	}
	if writes && !(looks && h.Err() != nil) {
		u.access(checker.Event{What: checker.Write, N: n, Name: ask.Name, Token: token, Value: read.Value + 1, Twin: read.Twin + 1})
	}
	if u.witness != nil {
		err := h.Err()
		if err != nil {
			<-ended // the loss is noted first
		}
		u.witness.Out(h, err)
	}
	u.leave(h, n, ended)
}

// nest takes the held lock once more, for a while, with the context of the
// hold.
func (u *user) nest(rnd *rand.Rand, outer *holdfast.Hold, ask checker.Event) {
	e := ask
	e.N, e.In, e.Alone, e.Bound, e.Try = u.number.Add(1), ask.N, false, true, false
	u.r.add(u.client, e)
	n := lockName{e.Name, e.Limit}
	h, err := take(outer.Context(), u.locks, n, e.Units, false, u.options(n)...)
	if err != nil { // the hold is lost
		u.r.add(u.client, checker.Event{What: checker.Failed, G: e.G, N: e.N, Err: answer.Class(err), Text: err.Error()})
		return
	}
	u.r.add(u.client, checker.Event{What: checker.Got, G: e.G, N: e.N, Token: h.Token(), End: u.claim(h)})
	time.Sleep(u.randomTime(rnd))
	told := make(chan struct{})
	close(told) // a loss is reported with the outer hold
	u.leave(h, e.N, told)
}

// leave releases the lock, and waits until a loss has been reported.
func (u *user) leave(h *holdfast.Hold, n int64, told <-chan struct{}) {
	out, end := checker.Event{What: checker.Out, N: n}, u.claim(h)
	if err := h.Err(); err != nil {
		out.Err = answer.Class(err)
	} else {
		out.End = end
	}
	u.r.add(u.client, out)
	done := checker.Event{What: checker.Done, N: n}
	if err := h.Unlock(); err != nil {
		done.Err, done.Text = answer.Class(err), err.Error()
	}
	<-told
	u.r.add(u.client, done)
}

// access carries out an access to the protected resource.
func (u *user) access(e checker.Event) checker.Answer {
	key := checker.Key{P: u.client, N: e.N}
	u.r.mu.Lock()
	defer u.r.mu.Unlock()
	if u.r.dead(u.client, u.r.since()) {
		return checker.Answer{}
	}
	var a checker.Answer
	if e.What == checker.Read {
		a = u.r.reg.Read(e.Name, e.Token, key)
	} else {
		a = u.r.reg.Write(e.Name, e.Token, key, e.Value, e.Twin)
	}
	e.T, e.P, e.OK = u.r.now(), u.client, a.OK
	u.r.checker.Add(e)
	return a
}
