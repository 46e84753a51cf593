package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// network is the driver of one client: the store, and the simulated way to it
// and back.
type network struct {
	faults.Hooked
	r      *run
	client int

	witness Witness // nil for none

	mu           sync.Mutex
	count        map[string]uint64 // requests and pushes so far, by kind
	inBackground sync.WaitGroup    // requests under way whose callers have gone
}

// networkFault is the fate of one request or push.
type networkFault struct {
	there, back time.Duration // the time of each way
	met         bool          // a fault, which is effect
	effect      faults.Effect
	hold        time.Duration
	arrives     bool // the request arrives even if its caller gives up while it is under way
}

// The faults of a request, and of a push.
var (
	requestFaults = []faults.Effect{faults.CutRequest, faults.LoseAnswer, faults.HoldRequest, faults.HoldAnswer, faults.Double, faults.Refuse}
	pushFaults    = []faults.Effect{faults.Drop, faults.Repeat, faults.Late, faults.Gap}
)

// meets reports whether the fault is the one of an effect.
func (f networkFault) meets(e faults.Effect) bool { return f.met && f.effect == e }

// nextFault returns the fate of the next request of a kind. The seed, the
// client and the number of the request among those of its kind determine it.
func (w *network) nextFault(kind string, effects []faults.Effect) networkFault {
	w.mu.Lock()
	n := w.count[kind]
	w.count[kind]++
	w.mu.Unlock()
	s := w.r.Schedule
	rnd := rand.New(rand.NewPCG(s.Seed, uint64(w.client+1)<<56|uint64(kind[0])<<40|uint64(len(kind))<<32|n))
	slow := int64(s.Slow[w.client]) + 1000
	f := networkFault{there: 1 + time.Duration(rnd.Int64N(slow)), back: time.Duration(rnd.Int64N(slow)), arrives: rnd.IntN(2) == 0}
	if rnd.IntN(100) < s.Odds && w.r.since() < s.ends()+2*s.TTL {
		f.met, f.effect = true, effects[rnd.IntN(len(effects))]
		// A request that is held for a short time is answered in time, but
		// late.
		f.hold = time.Duration(rnd.Float64() * []float64{0.16, 1.5}[rnd.IntN(2)] * float64(s.TTL))
		w.r.recordFault(w.client, fmt.Sprintf("%s %d of client %d: %v", kind, n+1, w.client, f.effect))
	}
	return f
}

// delay waits until a message that takes d arrives. If the client is cut off,
// the message arrives afterwards; if the client is dead, it never arrives.
func (w *network) delay(ctx context.Context, d time.Duration) bool {
	at := w.r.since() + d
	for until := at; ; at = until {
		timer := time.NewTimer(at - w.r.since())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		if w.r.dead(w.client, at) {
			<-ctx.Done()
			return false
		}
		if until = w.r.silent(w.client, at); until == at {
			return true
		}
	}
}

// request sends a request to the store.
func (w *network) request(ctx context.Context, q *faults.Request) (any, error) {
	if q.Op != faults.Join && q.Op != faults.Renew && q.Op != faults.Leave && q.Op != faults.Inspect {
		return q.Send(ctx)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	kind := q.Op.String()
	heard := func() {}
	if w.witness != nil {
		ctx, heard = w.witness.Sent(ctx)
	}
	f := w.nextFault(kind, requestFaults)
	if f.meets(faults.HoldRequest) {
		f.there += f.hold
	}
	began := w.r.since()
	if !w.delay(ctx, f.there) {
		if f.arrives && !f.meets(faults.CutRequest) && !w.r.dead(w.client, w.r.since()) {
			w.r.recordFault(w.client, fmt.Sprintf("a %s of client %d arrives when nobody waits for it any more", kind, w.client))
			later := q.Detached()
			w.inBackground.Go(func() {
				if w.delay(w.r.ctx, began+f.there-w.r.since()) && !w.r.out(w.r.since()) {
					if w.r.since()-began > w.r.TTL { // the client no longer tries to leave the place that this creates
						w.r.stale.Store(true)
					}
					_, _ = later.Send(w.r.ctx)
				}
			})
		}
		return nil, faults.Lost(ctx)
	}
	if f.meets(faults.Refuse) || w.r.out(w.r.since()) {
		w.r.recordDisturbance(w.client)
		return nil, &driver.Error{Class: driver.Unavailable, Err: errors.New("out of service")}
	}
	if f.meets(faults.CutRequest) {
		<-ctx.Done()
		return nil, faults.Lost(ctx)
	}
	if f.meets(faults.Double) {
		_, _ = q.Send(context.WithoutCancel(ctx))
	}
	a, err := q.Send(context.WithoutCancel(ctx))
	switch {
	case f.meets(faults.HoldAnswer):
		f.back += f.hold
	case f.meets(faults.LoseAnswer):
		<-ctx.Done()
		return nil, faults.Lost(ctx)
	}
	if !w.delay(ctx, f.back) {
		return nil, faults.Lost(ctx)
	}
	heard()
	return a, err
}

// passPush takes a push to the client. Each push takes a way of its own, so pushes
// overtake each other.
func (w *network) passPush(id string, p driver.Status, notify func(string, driver.Status)) {
	f := w.nextFault("push", pushFaults)
	if f.meets(faults.Drop) {
		return
	}
	if f.meets(faults.Late) {
		f.back += f.hold
	}
	if f.meets(faults.Gap) {
		id, p = "", driver.Status{}
	}
	w.inBackground.Go(func() {
		if !w.delay(w.r.ctx, f.back) {
			return
		}
		w.push(notify, id, p)
		if f.meets(faults.Repeat) && w.delay(w.r.ctx, f.there) {
			w.push(notify, id, p)
		}
	})
}

// push lets a push reach the client.
func (w *network) push(notify func(string, driver.Status), id string, p driver.Status) {
	if w.witness != nil && id != "" {
		w.witness.Heard(id, p)
	}
	notify(id, p)
}

// recordFault records that a client's request or push met a fault.
func (r *run) recordFault(client int, text string) {
	r.mu.Lock()
	r.notes = append(r.notes, fmt.Sprintf("%9.6fs %s", r.since().Seconds(), text))
	r.mu.Unlock()
	r.recordDisturbance(client)
}

// recordDisturbance tells the checker that a client was disturbed.
func (r *run) recordDisturbance(client int) { r.add(client, checker.Event{What: checker.Upset}) }
