package trace_test

import (
	"context"
	"flag"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/internal/safety/trace/tracetest"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

var coreScripted = flag.String("trace.core-script", "", "the script that TestRecordCoreScripts records; without one it is each")

// coreScripts let clients meet what schedules meet in few seeds, or never. A core with the
// mistake that a script is for shows it there.
var coreScripts = map[string]func(*desk){
	// A hold is lost while a goroutine of the same client waits for it.
	"a loss before a waiter": func(d *desk) {
		a := d.seat()
		unlock := a.lock(d.ctx)
		var waiting sync.WaitGroup
		waiting.Go(func() { a.lock(d.ctx)() })
		synctest.Wait()
		d.breakFirst()
		synctest.Wait()
		unlock()
		waiting.Wait()
	},
	// A goroutine is handed a permit while its Join is under way, which is granted then.
	"a hand-off overtakes a Join": func(d *desk) {
		a := d.seat()
		permits := a.locks.Semaphore("n", 3)
		one := func(ctx context.Context) (*holdfast.Hold, error) { return permits.Acquire(ctx, 1) }
		unlock := a.take(d.ctx, one)
		fate := func(next joining) (driver.Status, error) {
			s, err := next()
			time.Sleep(50 * time.Millisecond)
			return s, err
		}
		a.set(func() { a.join = fate })
		var waiting sync.WaitGroup
		waiting.Go(func() {
			unlock := a.take(d.ctx, one)
			time.Sleep(deskTTL / 10)
			unlock()
		})
		time.Sleep(5 * time.Millisecond) // while hand-offs are allowed
		unlock()
		waiting.Wait()
	},
	// The context of a wait ends, and its ticket is granted before its goroutine runs. It may
	// run first, so that there are several of them.
	"a grant meets the end of a wait": func(d *desk) {
		b := d.seat()
		for range 20 {
			a := d.seat()
			ctx, cancel := context.WithCancel(d.ctx)
			a.ends = cancel
			unlock := b.lock(d.ctx)
			var waiting sync.WaitGroup
			waiting.Go(func() { a.lock(ctx)() })
			synctest.Wait()
			unlock()
			waiting.Wait()
			a.close(d.t)
			cancel()
		}
	},
	// A ticket is granted while its goroutine is in a function of the user's, and then an
	// operator breaks it.
	"a loss meets a grant": func(d *desk) {
		b := d.seat()
		unlock := b.lock(d.ctx)
		a, goOn := d.busySeat()
		var waiting sync.WaitGroup
		waiting.Go(func() { a.lock(d.ctx)() })
		synctest.Wait()
		unlock()
		synctest.Wait()
		d.breakFirst()
		synctest.Wait()
		close(goOn)
		waiting.Wait()
	},
	// The answer to a Join is lost, its place is granted by a push and ends, and the Join,
	// which is repeated, comes when another ticket holds.
	"a place that has ended": func(d *desk) {
		a, b := d.seat(), d.seat()
		first := b.lock(d.ctx)
		began := time.Now()
		fate := func(next joining) (driver.Status, error) {
			since := time.Since(began)
			switch {
			case since == 0:
				_, _ = next()
			case since > deskTTL*7/10 && since < deskTTL:
				time.Sleep(deskTTL*11/10 - since) // the process is paused
				a.set(func() { a.join = nil })
				return next()
			}
			return driver.Status{}, driver.Errorf(driver.Unknown, "cut by the script")
		}
		a.set(func() { a.join = fate })
		var waiting sync.WaitGroup
		waiting.Go(func() { a.lock(d.ctx)() })
		synctest.Wait()
		first()
		second := b.lock(d.ctx)
		time.Sleep(deskTTL / 2)
		second()
		waiting.Wait()
	},
	// A place that is granted ends before the push arrives, and a Join that comes late takes
	// another one, which a renewal confirms.
	"a push of an ended place": func(d *desk) {
		a, b := d.seat(), d.seat()
		first := b.lock(d.ctx)
		var late joining
		fate := func(next joining) (driver.Status, error) {
			if late == nil {
				late = next
				return driver.Status{}, driver.Errorf(driver.Unknown, "cut by the script")
			}
			return next()
		}
		a.set(func() { a.join = fate })
		comes := make(chan struct{})
		a.push = comes
		var waiting sync.WaitGroup
		waiting.Go(func() { a.lock(d.ctx)() })
		time.Sleep(deskTTL / 5) // the Join is repeated, and takes a place
		a.set(func() { a.refuses = true })
		first()
		second := b.lock(d.ctx)
		a.set(func() { a.refuses = false })
		_, _ = late()
		time.Sleep(deskTTL / 10) // a renewal finds the place
		close(comes)
		time.Sleep(deskTTL / 10)
		second()
		waiting.Wait()
	},
	// A Try is granted, and an operator breaks its ticket before the answer arrives, of which a
	// push tells first.
	"a Try is broken before its answer": func(d *desk) {
		a := d.seat()
		a.lock(d.ctx)()
		fate := func(next joining) (driver.Status, error) {
			a.set(func() { a.join = nil })
			s, err := next()
			d.breakFirst()
			time.Sleep(10 * time.Millisecond)
			return s, err
		}
		a.set(func() { a.join = fate })
		a.take(d.ctx, a.locks.Mutex("n").TryLock)()
	},
	// A grant ends by an operator before its push arrives, between a renewal that finds no
	// place and its answer.
	"a push before an answer gone": func(d *desk) {
		a, b := d.seat(), d.seat()
		unlock := b.lock(d.ctx)
		comes := make(chan struct{})
		a.push, a.pushed = comes, driver.Held
		var waiting sync.WaitGroup
		waiting.Go(func() { a.lock(d.ctx)() })
		synctest.Wait()
		unlock()
		d.breakFirst()
		arrive := sync.OnceFunc(func() {
			close(comes)
			time.Sleep(10 * time.Millisecond)
		})
		a.set(func() { a.renewed = arrive })
		waiting.Wait()
	},
}

// deskTTL is the lease of scripts of the core.
const deskTTL = 10 * time.Second

// joining carries a Join to the store.
type joining func() (driver.Status, error)

// desk is a store of scripts of the core, with a client at each seat. The store forgets a
// ticket whose place has ended, as it may, so that a late Join takes another one.
type desk struct {
	t     *testing.T
	ctx   context.Context // ends a wait that nothing else ends
	r     *trace.Recorder
	store *broken.Store
	seats []*seat
}

// seat is a client, and the way to its store.
type seat struct {
	*trace.Driver
	locks   *holdfast.Client
	mu      sync.Mutex                           // guards what follows
	join    func(joining) (driver.Status, error) // the fate of a Join; nil: it is answered at once
	refuses bool                                 // renewals are refused
	renewed func()                               // is called before the answer to a renewal arrives; nil: nothing
	push    chan struct{}                        // pushes come once it is closed; nil: at once
	pushed  driver.State                         // others are lost; 0: none is
	ends    func()                               // is called just before a push arrives; nil: nothing
	closed  bool
}

// set changes or reads the fate of requests.
func (s *seat) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *seat) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	sent, heard := s.Sent(ctx)
	copied := *t
	next := func() (driver.Status, error) { return s.Driver.Join(context.WithoutCancel(sent), &copied, wait) }
	var fate func(joining) (driver.Status, error)
	s.set(func() { fate = s.join })
	if fate == nil {
		fate = func(next joining) (driver.Status, error) { return next() }
	}
	st, err := fate(next)
	if err == nil {
		heard()
	}
	return st, err
}

func (s *seat) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	var refuses bool
	var renewed func()
	s.set(func() { refuses, renewed = s.refuses, s.renewed })
	if refuses {
		return nil, driver.Errorf(driver.Unavailable, "refused by the script")
	}
	ctx, heard := s.Sent(ctx)
	defer heard()
	if renewed != nil {
		defer renewed()
	}
	return s.Driver.Renew(ctx, refs)
}

func (s *seat) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return s.Driver.Watch(ctx, func(id string, p driver.Status) {
		go func() {
			if s.push != nil {
				<-s.push
			}
			if s.pushed != 0 && p.State != s.pushed {
				return
			}
			s.Heard(id, p)
			if s.ends != nil {
				s.ends()
			}
			notify(id, p)
		}()
	})
}

// seat opens a client.
func (d *desk) seat(with ...holdfast.ClientOption) *seat {
	s := &seat{Driver: d.r.Wrap(broken.New(d.store))}
	locks, err := holdfast.New(s, append(with, holdfast.WithTTL(deskTTL), holdfast.WithObserver(s.Observer()))...)
	if err != nil {
		d.t.Fatal(err)
	}
	s.locks = locks
	d.seats = append(d.seats, s)
	return s
}

// busySeat opens a client whose goroutine, once it has to wait, is in a function of the
// user's until goOn is closed.
func (d *desk) busySeat() (_ *seat, goOn chan struct{}) {
	goOn = make(chan struct{})
	return d.seat(holdfast.WithObserver(&holdfast.Observer{LockWait: func(context.Context, holdfast.LockWaitInfo) { <-goOn }})), goOn
}

// lock takes the mutex, as take does.
func (s *seat) lock(ctx context.Context) (unlock func()) { return s.take(ctx, s.locks.Mutex("n").Lock) }

// take takes a lock, and notes what the user is told. Without a hold unlock does nothing.
func (s *seat) take(ctx context.Context, take func(context.Context) (*holdfast.Hold, error)) (unlock func()) {
	h, err := take(ctx)
	if err != nil {
		return func() {}
	}
	s.Got(h)
	told := make(chan struct{})
	context.AfterFunc(h.Context(), func() {
		defer close(told)
		if err := h.Err(); err != nil && strings.Contains(err.Error(), "lost") {
			s.Told(h, err)
		}
	})
	return func() {
		err := h.Err()
		if err != nil {
			<-told
		}
		s.Out(h, err)
		_ = h.Unlock()
	}
}

func (s *seat) close(t *testing.T) {
	if s.closed {
		return
	}
	s.closed = true
	if err := s.locks.Close(); err != nil {
		t.Errorf("Close: %v", err)
		return
	}
	s.Ended()
}

// breakFirst breaks the ticket that holds.
func (d *desk) breakFirst() {
	o := d.r.Wrap(broken.New(d.store))
	defer o.Close()
	q, err := o.Inspect(d.ctx, "n")
	if err != nil || len(q.Tickets) == 0 {
		d.t.Fatalf("%v has no holder: %v", q, err)
	}
	if err := o.Break(d.ctx, "n", q.Tickets[0].ID); err != nil {
		d.t.Fatal(err)
	}
}

// TestRecordCoreScripts writes the traces of scripts of the core, which internal/proof
// holds against the specification.
func TestRecordCoreScripts(t *testing.T) {
	if *coreScripted != "" && coreScripts[*coreScripted] == nil {
		t.Fatalf("there is no script %q", *coreScripted)
	}
	for name, play := range coreScripts {
		if *coreScripted != "" && *coreScripted != name {
			continue
		}
		var events []trace.Event
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(365 * 24 * time.Hour) // the store's clock is low in the bubble's first year
			ctx, stop := context.WithTimeout(t.Context(), 100*deskTTL)
			defer stop()
			d := &desk{t: t, ctx: ctx, r: trace.NewRecorder(1), store: broken.NewStore("left-forgotten")}
			play(d)
			for _, s := range d.seats {
				s.close(t)
			}
			synctest.Wait()
			events = d.r.Events()
		})
		tracetest.Write(t, name, events)
	}
}
