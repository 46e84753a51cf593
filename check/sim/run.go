package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/check"
	"github.com/holdfast-go/holdfast/driver"
)

// Store is what a schedule is played on.
type Store struct {
	Open func() driver.Driver // opens another client of it
	// What the events of the store do. Those that are nil do not happen.
	StepClock func(time.Duration)
	Wipe      func()
	Snapshot  func() (restore func())
}

// Played is a schedule that was played. Judge says what is wrong with it.
type Played struct {
	Schedule Schedule
	Calls    int
	Requests int      // sent, and pushes
	Met      []string // what happened to them, a line each

	checker *check.Checker
}

// run is a schedule that is being played.
type run struct {
	Schedule
	ctx   context.Context // ends when all is over
	began time.Time
	names []lockName
	ways  []*way

	deaths []context.CancelFunc // of clients
	stale  atomic.Bool          // a request has arrived later than a lease after it was sent

	mu      sync.Mutex
	checker *check.Checker
	notes   []string
	reg     check.Register
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

// today is when schedules are played: bubbles begin in the year 2000, when
// clocks were too low for tokens to be made of them.
var today = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Play plays a schedule on the store that fresh makes. It has to be called in a
// bubble of testing/synctest, and takes no time outside of it. What is wrong is
// not found here but by [Played.Judge], which is called outside of the bubble.
func Play(s Schedule, fresh func() Store) (*Played, error) {
	time.Sleep(time.Until(today))
	st := fresh()
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{Schedule: s, ctx: ctx, began: time.Now(), names: lockNames[:s.Names]}
	takes := s.TTL + s.TTL/20 + time.Second
	exposed, behind, forgets := []string{"C1", "C5"}, false, false
	for _, e := range s.Events {
		if e.What == Behind {
			takes -= e.Step // who held then lives on by that much
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
	rules := check.Rules{TTL: s.TTL, Fair: traits.Fair, Tokens: traits.Fencing, Takes: takes}
	if s.Exposed {
		rules.Exposed = exposed
	}
	r.checker = check.NewChecker(rules)
	var side, users sync.WaitGroup
	clients := make([]*holdfast.Client, s.Clients)
	var all []*user
	for i := range clients {
		w := &way{Driver: st.Open(), r: r, client: i, count: make(map[string]uint64)}
		r.ways = append(r.ways, w)
		alive, die := context.WithCancel(ctx)
		u := &user{r: r, client: i, ctx: alive}
		r.deaths = append(r.deaths, die)
		l, err := holdfast.New(w, holdfast.WithTTL(s.TTL), holdfast.WithObserver(u.observer()))
		if err != nil {
			cancel()
			return nil, err
		}
		clients[i], u.locks = l, l
		all = append(all, u)
	}
	side.Go(func() { r.happen(st) })
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
	// What a client could not leave it forgets when the lease is over, by its
	// own clock.
	tidy := !s.Exposed && !behind
	for i, l := range clients {
		tidy = l.Close() == nil && tidy && !s.dead(i, r.since())
	}
	if tidy && !r.stale.Load() { // nothing has to run out
		r.residue(st)
	}
	r.probe(st)
	time.Sleep(takes)
	r.residue(st)
	cancel()
	sent := 0
	for i, w := range r.ways {
		w.late.Wait()
		for _, n := range w.count {
			sent += int(n)
		}
		r.checker.Add(check.Event{T: r.now(), What: check.Gone, P: i})
	}
	return &Played{Schedule: s, Calls: r.calls, Requests: sent, Met: r.notes, checker: r.checker}, nil
}

// since is the time of the bubble since the begin.
func (r *run) since() time.Duration { return time.Since(r.began) }

// now is since as histories have it: no event is at 0.
func (r *run) now() int64 { return int64(r.since() + time.Second) }

// add takes an event of a client that lives into the history.
func (r *run) add(client int, e check.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead(client, r.since()) {
		return
	}
	e.T, e.P = r.now(), client
	r.checker.Add(e)
}

// tell is add for what concerns the store.
func (r *run) tell(e check.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.T, e.P = r.now(), check.Store
	r.checker.Add(e)
}

// mark is a moment of an event.
type mark struct {
	at time.Duration
	do func()
}

// happen lets the events happen, and returns when they are over.
func (r *run) happen(st Store) {
	var marks []mark
	// Waiters need a while to find out what has been done to the store.
	strike := func(e Event, do func()) {
		marks = append(marks, mark{e.At, func() { r.fault(check.Fault, e); do() }}, mark{e.At + 2*r.TTL, func() { r.fault(check.Heal, e) }})
	}
	for _, e := range r.Events {
		switch {
		case e.What == Silence || e.What == Outage:
			marks = append(marks, mark{e.At, func() { r.fault(check.Fault, e) }}, mark{e.At + e.For, func() { r.fault(check.Heal, e) }})
		case e.What == Death:
			marks = append(marks, mark{e.At, func() { r.die(e.Client) }})
		case (e.What == Behind || e.What == Ahead) && st.StepClock != nil:
			strike(e, func() { st.StepClock(e.Step) })
		case e.What == Wipe && st.Wipe != nil:
			strike(e, st.Wipe)
		case e.What == Restore && st.Snapshot != nil:
			var restore func()
			marks = append(marks, mark{e.At - e.For, func() { restore = st.Snapshot() }})
			strike(e, func() { restore() })
		}
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return int(a.at - b.at) })
	for _, m := range marks {
		time.Sleep(m.at - r.since())
		m.do()
	}
}

// fault writes the begin or the end of an event into the history.
func (r *run) fault(what check.What, e Event) {
	if ev := (check.Event{What: what, Text: string(e.What)}); e.What == Silence {
		r.add(e.Client, ev)
	} else {
		r.tell(ev)
	}
}

// die ends a client's history. That its goroutines give up is for the sake of
// the machine: nobody hears of them any more.
func (r *run) die(client int) {
	r.deaths[client]()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checker.Add(check.Event{T: r.now(), What: check.Gone, P: client, Text: "killed"})
}

// probe has a fresh client take each name.
func (r *run) probe(st Store) {
	fresh, err := holdfast.New(st.Open(), holdfast.WithTTL(r.TTL))
	if err != nil {
		panic(err) // the others were made in the same way
	}
	for _, n := range r.names {
		e, began := check.Event{What: check.Probe, Name: n.name}, r.since()
		limit, stop := context.WithTimeout(r.ctx, endless*r.TTL)
		h, err := take(limit, fresh, n, n.limit, false)
		stop()
		if err == nil {
			err = h.Unlock()
		}
		if e.Gap = int64(r.since() - began); err != nil {
			e.Err, e.Text = "failed", err.Error()
		}
		r.tell(e)
	}
	if err := fresh.Close(); err != nil {
		r.tell(check.Event{What: check.Stuck, Text: "a client that had left everything: " + err.Error()})
	}
}

// residue looks what the store has left.
func (r *run) residue(st Store) {
	d := st.Open()
	defer d.Close()
	for name, err := range d.Names(r.ctx, "") {
		if err != nil {
			panic(err) // a store in memory has none
		}
		l, err := d.Inspect(r.ctx, name)
		if err != nil {
			panic(err)
		}
		for _, e := range l.Tickets {
			r.tell(check.Event{What: check.Residue, Name: name, Text: fmt.Sprintf("ticket %s, %v, with %v left", e.ID, e.State, e.Left)})
		}
	}
}

// Judge returns what is wrong, each with the schedule and the calls beside each
// other, and what was counted.
func (p *Played) Judge() (violations []string, stats check.Stats) {
	p.checker.Finish()
	bad, _ := p.checker.Violations()
	for _, v := range bad {
		violations = append(violations, p.checker.Describe(v))
	}
	return violations, p.checker.Stats()
}
