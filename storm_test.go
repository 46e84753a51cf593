package holdfast_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// storm is a driver whose requests, answers and pushes are delayed, lost,
// repeated and refused at random, within what the seam allows. It also checks
// what the seam guarantees to drivers.
type storm struct {
	*memlock.Driver
	fail func(format string, args ...any)

	mu       sync.Mutex
	rnd      *rand.Rand
	level    float64       // frequency of faults
	lag      time.Duration // the longest time that a request travels
	until    time.Time     // silence before this
	joining  map[string]bool
	left     map[string]bool // without JoinPending: no Join may follow
	watching bool
}

func newStorm(s *memlock.Store, rnd *rand.Rand, level float64, lag time.Duration, fail func(string, ...any)) *storm {
	return &storm{Driver: memlock.New(s), fail: fail, rnd: rnd, level: level, lag: lag,
		joining: make(map[string]bool), left: make(map[string]bool)}
}

func (d *storm) calm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.level, d.until = 0, time.Time{}
}

func (d *storm) silence(length time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Now().Add(length)
}

// fate is the outcome of one request.
type fate struct {
	there, back time.Duration
	what        int
	class       driver.Class
	odd         bool
}

const (
	fine       = iota
	lost       // never arrives, no reply
	cut        // never arrives, and the caller learns that a connection broke
	late       // arrives after the caller has given up
	lostAnswer // takes effect, no reply
	cutAnswer  // takes effect, and the caller learns that a connection broke
	refusal    // a classed error, no effect
	fates
)

func (d *storm) fate() fate {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := fate{odd: d.rnd.IntN(2) == 0}
	f.class = []driver.Class{driver.NotDone, driver.Unavailable, driver.Unknown}[d.rnd.IntN(3)]
	if d.lag > 0 {
		f.there, f.back = d.delay(), d.delay()
	}
	switch {
	case time.Now().Before(d.until):
		f.what = lost
	case d.rnd.Float64() < d.level:
		f.what = 1 + d.rnd.IntN(fates-1)
	}
	return f
}

// delay returns a travel time, usually far below the lag. d.mu is held.
func (d *storm) delay() time.Duration {
	if d.rnd.IntN(3) == 0 {
		return 0
	}
	x := d.rnd.Float64()
	return time.Duration(x * x * x * float64(d.lag))
}

func (d *storm) chance(p float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.level > 0 && d.rnd.Float64() < p*d.level
}

func pass(ctx context.Context, length time.Duration) bool {
	if length == 0 {
		return true
	}
	select {
	case <-time.After(length):
		return true
	case <-ctx.Done():
		return false
	}
}

// request applies f to one request.
func request[T any](ctx context.Context, f fate, effect func() (T, error)) (v T, err error) {
	if err := driver.Before(ctx); err != nil {
		return v, err
	}
	behind := func(delay time.Duration) { go func() { time.Sleep(delay); _, _ = effect() }() }
	switch f.what {
	case lost:
		<-ctx.Done()
		return v, ctx.Err()
	case cut:
		pass(ctx, f.there)
		return v, errCut
	case refusal:
		pass(ctx, f.there)
		return v, driver.Errorf(f.class, "no")
	case late:
		behind(200*time.Millisecond + 50*f.there)
		if f.odd {
			return v, errCut
		}
		<-ctx.Done()
		return v, ctx.Err()
	}
	if !pass(ctx, f.there) {
		behind(f.back)
		return v, ctx.Err()
	}
	v, err = effect()
	switch {
	case f.what == lostAnswer:
		<-ctx.Done()
		return *new(T), ctx.Err()
	case f.what == cutAnswer:
		return *new(T), errCut
	case !pass(ctx, f.back) && f.odd:
		return *new(T), ctx.Err()
	}
	return v, err
}

func (d *storm) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.mu.Lock()
	if d.joining[t.ID] {
		d.fail("%s is in two Joins at once", t.ID)
	}
	if d.left[t.ID] {
		d.fail("a Join of %s after its Leave", t.ID)
	}
	if wait && !d.watching {
		d.fail("a Join before Watch")
	}
	d.joining[t.ID] = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.joining, t.ID)
		d.mu.Unlock()
	}()
	copied := *t
	return request(ctx, d.fate(), func() (driver.Status, error) { return d.Driver.Join(bg, &copied, wait) })
}

func (d *storm) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return request(ctx, d.fate(), d.batch(refs, d.Driver.Renew))
}

func (d *storm) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.mu.Lock()
	for _, r := range refs {
		if d.joining[r.ID] && !r.JoinPending {
			d.fail("a Leave of %s overtakes its Join", r.ID)
		}
		if !r.JoinPending {
			d.left[r.ID] = true
		}
	}
	d.mu.Unlock()
	return request(ctx, d.fate(), d.batch(refs, d.Driver.Leave))
}

type many func(context.Context, []driver.Ref) ([]driver.Status, error)

// batch returns a request about many tickets, some of which may fail on their
// own.
func (d *storm) batch(refs []driver.Ref, send many) func() ([]driver.Status, error) {
	own := make([]driver.Ref, len(refs))
	for i, r := range refs {
		copied := *r.Ticket
		own[i] = driver.Ref{Ticket: &copied, State: r.State, JoinPending: r.JoinPending}
	}
	return func() ([]driver.Status, error) {
		places := make([]driver.Status, len(own))
		for i := range own {
			before, after := d.chance(0.2), d.chance(0.2)
			if before {
				places[i].Err = driver.Errorf(driver.NotDone, "this one not")
				continue
			}
			ps, err := send(bg, own[i:i+1])
			switch {
			case err != nil:
				return nil, err
			case after:
				places[i].Err = errCut
			default:
				places[i] = ps[0]
			}
		}
		return places, nil
	}
}

func (d *storm) Watch(ctx context.Context, moved func(string, driver.Status)) error {
	d.mu.Lock()
	d.watching = true
	d.mu.Unlock()
	f := d.fate()
	f.what = min(f.what, 1) * refusal // fails or succeeds
	_, err := request(ctx, f, func() (struct{}, error) {
		return struct{}{}, d.Driver.Watch(ctx, func(id string, p driver.Status) { d.push(ctx, moved, id, p) })
	})
	return err
}

func (d *storm) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return request(ctx, d.fate(), func() (driver.Queue, error) { return d.Driver.Inspect(bg, name) })
}

func (d *storm) push(ctx context.Context, moved func(string, driver.Status), id string, p driver.Status) {
	d.mu.Lock()
	silent := time.Now().Before(d.until)
	delay, again := d.delay(), 20*d.delay()
	odd := d.rnd.Float64() < d.level
	what := d.rnd.IntN(4)
	d.mu.Unlock()
	send := func(delay time.Duration, id string, p driver.Status) {
		if delay == 0 {
			moved(id, p)
			return
		}
		go func() {
			if time.Sleep(delay); ctx.Err() == nil {
				moved(id, p)
			}
		}()
	}
	switch {
	case silent, odd && what == 0: // lost without notice
	case odd && what == 1: // lost in a gap
		send(again, "", driver.Status{})
	case odd && what == 2: // twice
		send(delay, id, p)
		send(again, id, p)
	case odd: // late
		send(again, id, p)
	default:
		send(delay, id, p)
	}
}
