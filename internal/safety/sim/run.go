package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// Store is the store on which a schedule is played.
type Store struct {
	Open func() driver.Driver // opens another client of the store
	// The functions carry out the events of the store. An event whose function
	// is nil does not happen.
	StepClock func(time.Duration)
	Wipe      func()
	Snapshot  func() (restore func())
	Closing   func(driver.Driver) // called just before a client is closed by an Ending
}

// Witness is a driver of a Store that notes, beside its requests, what its client is told.
// It must not change what happens.
type Witness interface {
	// Sent notes that a request is sent, with the context that it returns, and, when heard is
	// called, that the client has its answer.
	Sent(ctx context.Context) (_ context.Context, heard func())
	// Observer returns an Observer for the client.
	Observer() *holdfast.Observer
	Got(h *holdfast.Hold)              // a call has returned h, which is not nested
	Out(h *holdfast.Hold, err error)   // h, whose Err is err, is about to be unlocked
	Told(h *holdfast.Hold, lost error) // the context of h has ended with a loss
	// Heard notes that a push is about to reach the client.
	Heard(id string, s driver.Status)
	// Ended notes that the client has closed, and that nothing keeps a place of its.
	Ended()
}

// Played is a schedule that was played. Judge returns its violations.
type Played struct {
	Schedule Schedule
	Calls    int
	Requests int      // requests sent, and pushes
	Met      []string // the faults that requests and pushes met, a line each
	Stopped  int      // functions of Do that were asked to stop by an Ending

	checker  *checker.Checker
	observed []string // violations in the events of Observers
}

// run is a schedule that is being played.
type run struct {
	Schedule
	ctx      context.Context // ends with the run
	began    time.Time
	names    []lockName
	networks []*network

	deaths []context.CancelFunc // for each client: kills it
	stale  atomic.Bool          // a request has arrived more than a lease after it was sent

	stopped atomic.Int64 // functions that were asked to stop

	mu      sync.Mutex
	checker *checker.Checker
	notes   []string
	reg     checker.Register
	calls   int
}

// lockName is one of the locks.
type lockName struct {
	name  string
	limit int64
}

// permits is the size of the semaphore.
const permits = 3

var lockNames = []lockName{{"mutex", 1}, {"rw", driver.RWLimit}, {"semaphore", permits}}

// today is the date at which schedules run. Bubbles begin in the year 2000,
// when clocks were too low to serve as tokens.
var today = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Play plays a schedule on the store that fresh creates. It must be called in a
// bubble of testing/synctest, and takes no time outside of it. [Played.Judge],
// called outside of the bubble, returns the violations.
func Play(s Schedule, fresh func() Store) (*Played, error) {
	time.Sleep(time.Until(today))
	st := fresh()
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{Schedule: s, ctx: ctx, began: time.Now(), names: lockNames[:s.Names]}
	takes := s.TTL + s.TTL/20 + time.Second
	exposed, behind, forgets := []string{"C1", "C5"}, false, false
	for _, e := range s.Events {
		if e.What == Behind {
			takes -= e.Step // a holder from before the step lives on for as long
		}
		behind = behind || e.What == Behind
		forgets = forgets || e.What == Wipe || e.What == Restore
	}
	if behind && forgets { // the one case in which tokens may go back; the guard still refuses them
		exposed = append(exposed, "C3", "C4")
	}
	first := st.Open()
	traits := first.Traits()
	if err := first.Close(); err != nil {
		cancel()
		return nil, err
	}
	rules := checker.Rules{TTL: s.TTL, Fair: traits.Fair, Tokens: traits.Fencing, Takes: takes}
	if s.Exposed {
		rules.Exposed = exposed
	}
	r.checker = checker.NewChecker(rules)
	var side, users sync.WaitGroup
	clients := make([]*holdfast.Client, s.Clients)
	var all []*user
	for i := range clients {
		w := &network{r: r, client: i, count: make(map[string]uint64)}
		w.Hooked = faults.Hooked{Driver: st.Open(), OnRequest: w.request, OnPush: w.passPush}
		options := []holdfast.ClientOption{holdfast.WithTTL(s.TTL)}
		if w.witness, _ = w.Driver.(Witness); w.witness != nil && len(s.Endings) > 0 {
			w.witness = nil // functions of Do have no holds to note
		}
		if w.witness != nil {
			options = append(options, holdfast.WithObserver(w.witness.Observer()))
		}
		r.networks = append(r.networks, w)
		alive, die := context.WithCancel(ctx)
		u := &user{r: r, client: i, ctx: alive, witness: w.witness}
		r.deaths = append(r.deaths, die)
		l, err := holdfast.New(w, append(options, holdfast.WithObserver(u.observer()))...)
		if err != nil {
			cancel()
			return nil, err
		}
		clients[i], u.locks = l, l
		all = append(all, u)
	}
	side.Go(func() { r.playEvents(st) })
	for i, e := range s.Endings {
		var begins func()
		if st.Closing != nil {
			begins = func() { st.Closing(r.networks[i].Driver) }
		}
		side.Go(func() { all[i].playEnding(e, begins) })
	}
	for _, u := range all {
		for g := range s.Goroutines {
			users.Go(func() { u.work(g) })
		}
	}
	users.Wait()
	side.Wait()
	for _, die := range r.deaths {
		die()
	}
	// A client ends the clean-up of a place that it could not leave when the
	// lease is over, by its own clock.
	tidy := !s.Exposed && !behind
	for i, l := range clients {
		left := l.Close() == nil && !s.dead(i, r.since())
		if w := r.networks[i].witness; left && !s.Exposed && !behind && !r.stale.Load() && w != nil {
			w.Ended()
		}
		tidy = left && tidy
	}
	if tidy && !r.stale.Load() { // no place has to expire first
		r.recordResidue(st)
	}
	r.probe(st)
	time.Sleep(takes)
	r.recordResidue(st)
	cancel()
	sent := 0
	for i, w := range r.networks {
		w.inBackground.Wait()
		for _, n := range w.count {
			sent += int(n)
		}
		r.checker.Add(checker.Event{T: r.now(), What: checker.Gone, P: i})
	}
	p := &Played{Schedule: s, Calls: r.calls, Requests: sent, Met: r.notes, Stopped: int(r.stopped.Load()), checker: r.checker}
	for _, u := range all {
		p.observed = append(p.observed, u.seen.finish(u.client)...)
	}
	return p, nil
}

// since returns the bubble's time since the begin of the run.
func (r *run) since() time.Duration { return time.Since(r.began) }

// now returns the time for the history, in which no event is at 0.
func (r *run) now() int64 { return int64(r.since() + time.Second) }

// add adds an event of a live client to the history.
func (r *run) add(client int, e checker.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead(client, r.since()) {
		return
	}
	e.T, e.P = r.now(), client
	r.checker.Add(e)
}

// addStoreEvent adds an event of the store to the history.
func (r *run) addStoreEvent(e checker.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.T, e.P = r.now(), checker.Store
	r.checker.Add(e)
}

// scheduledStep is a moment of an event.
type scheduledStep struct {
	at time.Duration
	do func()
}

// playEvents carries out the events, and returns after the last.
func (r *run) playEvents(st Store) {
	var marks []scheduledStep
	// Waiters need some time to notice that the store has changed.
	strike := func(e Event, do func()) {
		marks = append(marks, scheduledStep{e.At, func() { r.fault(checker.Fault, e); do() }}, scheduledStep{e.At + 2*r.TTL, func() { r.fault(checker.Heal, e) }})
	}
	for _, e := range r.Events {
		switch {
		case e.What == Silence || e.What == Outage:
			marks = append(marks, scheduledStep{e.At, func() { r.fault(checker.Fault, e) }}, scheduledStep{e.At + e.For, func() { r.fault(checker.Heal, e) }})
		case e.What == Death:
			marks = append(marks, scheduledStep{e.At, func() { r.killClient(e.Client) }})
		case (e.What == Behind || e.What == Ahead) && st.StepClock != nil:
			strike(e, func() { st.StepClock(e.Step) })
		case e.What == Wipe && st.Wipe != nil:
			strike(e, st.Wipe)
		case e.What == Restore && st.Snapshot != nil:
			var restore func()
			marks = append(marks, scheduledStep{e.At - e.For, func() { restore = st.Snapshot() }})
			strike(e, func() { restore() })
		}
	}
	slices.SortStableFunc(marks, func(a, b scheduledStep) int { return int(a.at - b.at) })
	for _, m := range marks {
		time.Sleep(m.at - r.since())
		m.do()
	}
}

// fault adds the begin or the end of an event to the history.
func (r *run) fault(what checker.What, e Event) {
	if ev := (checker.Event{What: what, Text: string(e.What)}); e.What == Silence {
		r.add(e.Client, ev)
	} else {
		r.addStoreEvent(ev)
	}
}

// killClient ends a client's history and its goroutines. The goroutines end
// only to free the machine: nothing of them is recorded any more.
func (r *run) killClient(client int) {
	r.deaths[client]()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checker.Add(checker.Event{T: r.now(), What: checker.Gone, P: client, Text: "killed"})
}

// probe lets a fresh client take each name.
func (r *run) probe(st Store) {
	fresh, err := holdfast.New(st.Open(), holdfast.WithTTL(r.TTL))
	if err != nil {
		panic(err) // the other clients were opened in the same way
	}
	for _, n := range r.names {
		e, began := checker.Event{What: checker.Probe, Name: n.name}, r.since()
		limit, stop := context.WithTimeout(r.ctx, endless*r.TTL)
		h, err := take(limit, fresh, n, n.limit, false)
		stop()
		if err == nil {
			err = h.Unlock()
		}
		if e.Gap = int64(r.since() - began); err != nil {
			e.Err, e.Text = "failed", err.Error()
		}
		r.addStoreEvent(e)
	}
	if err := fresh.Close(); err != nil {
		r.addStoreEvent(checker.Event{What: checker.Stuck, Text: "a client that had left everything: " + err.Error()})
	}
}

// recordResidue records the tickets and names that the store still has.
func (r *run) recordResidue(st Store) {
	d := st.Open()
	defer d.Close()
	for name, err := range d.Names(r.ctx, "") {
		if err != nil {
			panic(err) // a store in memory has no errors
		}
		l, err := d.Inspect(r.ctx, name)
		if err != nil {
			panic(err)
		}
		for _, e := range l.Tickets {
			r.addStoreEvent(checker.Event{What: checker.Residue, Name: name, Text: fmt.Sprintf("ticket %s, %v, with %v left", e.ID, e.State, e.Left)})
		}
	}
}

// Judge returns the violations, each with the schedule and its calls side by
// side, and the counts.
func (p *Played) Judge() (violations []string, stats checker.Stats) {
	p.checker.Finish()
	bad, _ := p.checker.Violations()
	violations = slices.Clone(p.observed)
	for _, v := range bad {
		violations = append(violations, p.checker.Describe(v))
	}
	return violations, p.checker.Stats()
}
