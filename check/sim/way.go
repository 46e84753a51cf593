package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/check"
	"github.com/holdfast-go/holdfast/driver"
)

// way is the driver of one client: the store, and the way there and back.
type way struct {
	driver.Driver
	r      *run
	client int

	mu    sync.Mutex
	count map[string]uint64 // requests and pushes so far, by kind
	late  sync.WaitGroup    // what is still on its way when nobody waits for it
}

// fate is what happens to one request or push.
type fate struct {
	there, back time.Duration // how long it takes
	what        string        // "" when nothing happens
	hold        time.Duration
	arrives     bool // if its caller gives up while it is under way
}

// The fates of a request, and of a push.
var (
	ofRequests = []string{"cut", "answer lost", "held", "answer held", "doubled", "refused"}
	ofPushes   = []string{"dropped", "doubled", "held", "gap"}
)

// fate is decided by the seed, the client and the number of the request among
// those of its kind.
func (w *way) fate(kind string, fates []string) fate {
	w.mu.Lock()
	n := w.count[kind]
	w.count[kind]++
	w.mu.Unlock()
	s := w.r.Schedule
	rnd := rand.New(rand.NewPCG(s.Seed, uint64(w.client+1)<<56|uint64(kind[0])<<40|uint64(len(kind))<<32|n))
	slow := int64(s.Slow[w.client]) + 1000
	f := fate{there: time.Duration(rnd.Int64N(slow)), back: time.Duration(rnd.Int64N(slow)), arrives: rnd.IntN(2) == 0}
	if rnd.IntN(100) < s.Odds && w.r.since() < s.ends()+2*s.TTL {
		f.what = fates[rnd.IntN(len(fates))]
		// What is held for little is answered in time, and late.
		f.hold = time.Duration(rnd.Float64() * []float64{0.16, 1.5}[rnd.IntN(2)] * float64(s.TTL))
		w.r.met(w.client, fmt.Sprintf("%s %d of client %d: %s", kind, n+1, w.client, f.what))
	}
	return f
}

var errLost = errors.New("lost on the way")

func unknown(ctx context.Context) error {
	return &driver.Error{Class: driver.Unknown, Err: errors.Join(errLost, context.Cause(ctx))}
}

// travel waits until what is on its way for d arrives. It arrives when its
// client is not cut off, and never when that is dead.
func (w *way) travel(ctx context.Context, d time.Duration) bool {
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

// sender sends a request to the store.
type sender[A any] = func(context.Context) (A, error)

// call sends a request. What keep returns sends it when its caller has gone: it
// shares nothing with it.
func call[A any](w *way, ctx context.Context, kind string, send sender[A], keep func() sender[A]) (A, error) {
	var none A
	if err := driver.Before(ctx); err != nil {
		return none, err
	}
	f := w.fate(kind, ofRequests)
	if f.what == "held" {
		f.there += f.hold
	}
	began := w.r.since()
	if !w.travel(ctx, f.there) {
		if f.arrives && f.what != "cut" && !w.r.dead(w.client, w.r.since()) {
			w.r.met(w.client, fmt.Sprintf("a %s of client %d arrives when nobody waits for it any more", kind, w.client))
			later := keep()
			w.late.Go(func() {
				if w.travel(w.r.ctx, began+f.there-w.r.since()) && !w.r.out(w.r.since()) {
					if w.r.since()-began > w.r.TTL { // its client has given up leaving what it makes
						w.r.stale.Store(true)
					}
					_, _ = later(w.r.ctx)
				}
			})
		}
		return none, unknown(ctx)
	}
	if f.what == "refused" || w.r.out(w.r.since()) {
		w.r.upset(w.client)
		return none, &driver.Error{Class: driver.Unavailable, Err: errors.New("out of service")}
	}
	if f.what == "cut" {
		<-ctx.Done()
		return none, unknown(ctx)
	}
	if f.what == "doubled" {
		_, _ = send(context.WithoutCancel(ctx))
	}
	a, err := send(context.WithoutCancel(ctx))
	switch f.what {
	case "answer held":
		f.back += f.hold
	case "answer lost":
		<-ctx.Done()
		return none, unknown(ctx)
	}
	if !w.travel(ctx, f.back) {
		return none, unknown(ctx)
	}
	return a, err
}

// Join implements [driver.Driver].
func (w *way) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	return call(w, ctx, "join", func(ctx context.Context) (driver.Place, error) {
		return w.Driver.Join(ctx, t, wait)
	}, func() sender[driver.Place] {
		c := *t
		return func(ctx context.Context) (driver.Place, error) { return w.Driver.Join(ctx, &c, wait) }
	})
}

// Renew implements [driver.Driver].
func (w *way) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return w.batch(ctx, "renew", refs, w.Driver.Renew)
}

// Leave implements [driver.Driver].
func (w *way) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return w.batch(ctx, "leave", refs, w.Driver.Leave)
}

func (w *way) batch(ctx context.Context, kind string, refs []driver.Ref, send func(context.Context, []driver.Ref) ([]driver.Place, error)) ([]driver.Place, error) {
	return call(w, ctx, kind, func(ctx context.Context) ([]driver.Place, error) {
		return send(ctx, refs)
	}, func() sender[[]driver.Place] {
		copies := append([]driver.Ref(nil), refs...)
		for i := range copies {
			t := *copies[i].Ticket
			copies[i].Ticket = &t
		}
		return func(ctx context.Context) ([]driver.Place, error) { return send(ctx, copies) }
	})
}

// Watch implements [driver.Driver]. Each push has a way of its own, so they
// overtake each other.
func (w *way) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	return w.Driver.Watch(ctx, func(id string, p driver.Place) {
		f := w.fate("push", ofPushes)
		if f.what == "dropped" {
			return
		}
		if f.what == "held" {
			f.back += f.hold
		}
		if f.what == "gap" {
			id, p = "", driver.Place{}
		}
		w.late.Go(func() {
			if !w.travel(w.r.ctx, f.back) {
				return
			}
			moved(id, p)
			if f.what == "doubled" && w.travel(w.r.ctx, f.there) {
				moved(id, p)
			}
		})
	})
}

// met notes that something happened to a client's request or push.
func (r *run) met(client int, text string) {
	r.mu.Lock()
	r.notes = append(r.notes, fmt.Sprintf("%9.6fs %s", r.since().Seconds(), text))
	r.mu.Unlock()
	r.upset(client)
}

// upset tells the checker that a client was disturbed.
func (r *run) upset(client int) { r.add(client, check.Event{What: check.Upset}) }
