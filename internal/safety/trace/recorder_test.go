package trace_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/sim"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestRecorderNotesRequestsAnswersAndPushes checks the order of events, and that a
// push is noted between the request that caused it and the next one.
func TestRecorderNotesRequestsAnswersAndPushes(t *testing.T) {
	ctx := context.Background()
	s := memlock.NewStore()
	r := trace.NewRecorder(7)
	a, b := r.Wrap(memlock.New(s)), r.Wrap(memlock.New(s))
	if err := b.Watch(ctx, func(string, driver.Status) {}); err != nil {
		t.Fatal(err)
	}
	ta := &driver.Ticket{ID: "a:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute}
	tb := &driver.Ticket{ID: "b:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute}
	if _, err := a.Join(ctx, ta, true); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Join(ctx, tb, true); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Leave(ctx, []driver.Ref{{Ticket: ta, JoinPending: true}}); err != nil {
		t.Fatal(err)
	}
	r.StepClock(time.Second, s.StepClock)
	if _, err := b.Renew(ctx, []driver.Ref{{Ticket: tb}}); err != nil {
		t.Fatal(err)
	}
	if err := a.Break(ctx, "n", "no:1"); err == nil {
		t.Fatal("it broke what is not there")
	}
	events := r.Events()
	var kinds []trace.Kind
	for i, e := range events {
		kinds = append(kinds, e.Kind)
		if e.Seed != 7 || e.Seq != int64(i+1) {
			t.Errorf("%v", e)
		}
	}
	if want := []trace.Kind{trace.Watch, trace.Join, trace.Join, trace.Leave, trace.Push, trace.Step, trace.Renew, trace.Break}; !slices.Equal(kinds, want) {
		t.Fatalf("events are %q, want %q", kinds, want)
	}
	if e := events[2]; e.State != "waiting" || e.Ahead != 1 || e.Lease != int64(time.Minute) {
		t.Errorf("%v", e)
	}
	if e := events[3]; e.State != "held" || !e.Pending {
		t.Errorf("%v", e)
	}
	if e := events[4]; e.Client != 2 || e.ID != "b:1" || e.Token == 0 || e.Token != events[6].Token {
		t.Errorf("%v", e)
	}
	if e := events[6]; e.At < int64(time.Second) {
		t.Errorf("the step of the clock is not in %v", e)
	}
	if e := events[7]; e.Err != driver.Refused.String() {
		t.Errorf("%v", e)
	}
}

// leavesAll is a driver that answers as a server which takes the tickets of a Leave in
// another order, and sends pushes at any time.
type leavesAll struct {
	*memlock.Driver
	push   func(string, driver.Status)
	answer []driver.Status
}

func (d *leavesAll) Watch(_ context.Context, notify func(string, driver.Status)) error {
	d.push = notify
	return nil
}

func (d *leavesAll) Leave(context.Context, []driver.Ref) ([]driver.Status, error) {
	return d.answer, nil
}

// TestRecorderOrdersTheLeavesOfOneCall checks that the Leaves of one call to a server have
// an order in which they may have been carried out: a holder that leaves makes room for
// another ticket of the call.
func TestRecorderOrdersTheLeavesOfOneCall(t *testing.T) {
	held := func(token uint64) driver.Status { return driver.Status{State: driver.Held, Token: token} }
	d := &leavesAll{Driver: memlock.New(memlock.NewStore()), answer: []driver.Status{held(8), {State: driver.Gone}, held(7), {State: driver.Waiting}}}
	for server, want := range map[bool][]string{false: {"a:1", "a:2", "a:3", "a:4"}, true: {"a:4", "a:2", "a:3", "a:1"}} {
		r := trace.NewRecorder(1)
		if server {
			r = trace.NewServerRecorder(1)
		}
		all, err := r.Wrap(d).Leave(context.Background(), refs("a:1", "a:2", "a:3", "a:4"))
		if err != nil || !slices.Equal(all, d.answer) {
			t.Fatalf("%v: %v", all, err)
		}
		var got []string
		for i, e := range r.Events() {
			got = append(got, e.ID)
			if e.Seq != int64(i+1) || i > 0 && e.At < r.Events()[i-1].At {
				t.Errorf("%v", e)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("server %v: %q, want %q", server, got, want)
		}
	}
}

// TestPushesComeBetweenNoTicketsOfACall checks that each ticket of a call has its own
// answer, though the store sends pushes meanwhile.
func TestPushesComeBetweenNoTicketsOfACall(t *testing.T) {
	ctx := context.Background()
	d := &leavesAll{Driver: memlock.New(memlock.NewStore()), answer: []driver.Status{{State: driver.Waiting}, {State: driver.Gone}, {State: driver.Held, Token: 7}}}
	r := trace.NewServerRecorder(1)
	wrapped := r.Wrap(d)
	if err := wrapped.Watch(ctx, func(string, driver.Status) {}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var pushing sync.WaitGroup
	pushing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				d.push("b:1", driver.Status{State: driver.Held, Token: 9})
			}
		}
	})
	for range 2000 {
		if _, err := wrapped.Leave(ctx, refs("a:1", "a:2", "a:3")); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	pushing.Wait()
	want := map[string]string{"a:1": "waiting", "a:2": "gone", "a:3": "held", "b:1": "held"}
	for _, e := range r.Events() {
		if e.Kind != trace.Watch && e.State != want[e.ID] {
			t.Fatalf("%v", e)
		}
	}
}

func refs(ids ...string) (all []driver.Ref) {
	for _, id := range ids {
		all = append(all, driver.Ref{Ticket: &driver.Ticket{ID: id, Name: "n", Units: 1, Limit: 1, TTL: time.Minute}})
	}
	return all
}

// TestRecorderDoesNotDisturb checks that schedules end as they do without it: the
// recorder serialises requests, which must not hide or make anything.
func TestRecorderDoesNotDisturb(t *testing.T) {
	for seed := uint64(1); seed <= 300; seed++ {
		_, without := play(t, sim.Plan(seed, false), memory, false)
		events, with := play(t, sim.Plan(seed, false), memory, true)
		a, _ := without.Judge()
		b, _ := with.Judge()
		if len(a) != 0 || len(b) != 0 || without.Calls != with.Calls {
			t.Fatalf("seed %d: without it %d calls, %q; with it %d calls, %q", seed, without.Calls, a, with.Calls, b)
		}
		if len(events) < with.Calls {
			t.Fatalf("seed %d: %d events of %d calls", seed, len(events), with.Calls)
		}
	}
}

// TestRecorderDoesNotHideFlaws checks that what the checker finds without the
// recorder it finds with it.
func TestRecorderDoesNotHideFlaws(t *testing.T) {
	found := func(record bool) bool {
		for seed := uint64(1); seed <= 100; seed++ {
			_, p := play(t, sim.Plan(seed, false), flawed("two-holders"), record)
			if violations, _ := p.Judge(); len(violations) > 0 {
				return true
			}
		}
		return false
	}
	if a, b := found(false), found(true); !a || !b {
		t.Errorf("two holders are found without the recorder: %v, and with it: %v", a, b)
	}
}

// TestTracesOfOneRunAreSplitByLock checks that no request is lost on the way from
// a run to its traces.
func TestTracesOfOneRunAreSplitByLock(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		events, _ := play(t, sim.Plan(seed, false), memory, true)
		if runs := trace.Runs(append(slices.Clone(events), events...)); len(runs) != 2 || len(runs[0]) != len(events) || len(runs[1]) != len(events) {
			t.Fatalf("%d runs", len(runs))
		}
		traces, err := trace.Split(events)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[int64]bool{}
		for _, tr := range traces {
			for i, e := range tr.Events {
				seen[e.Seq] = true
				if i > 0 && e.Seq <= tr.Events[i-1].Seq {
					t.Fatalf("seed %d: %v comes after event %d", seed, e, tr.Events[i-1].Seq)
				}
			}
		}
		for _, e := range events {
			asks := e.Kind == trace.Join || e.Kind == trace.Renew || e.Kind == trace.Leave || e.Kind == trace.Push || e.Kind == trace.Break
			if asks && !seen[e.Seq] {
				t.Errorf("seed %d: %v is in no trace", seed, e)
			}
		}
	}
}

// TestChangesChangeOneThing checks that each kind of change is met, changes
// something, and leaves the trace that it is made of alone.
func TestChangesChangeOneThing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	made := map[string]int{}
	for seed := uint64(1); seed <= 40; seed++ {
		events, _ := play(t, sim.Plan(seed, false), memory, true)
		traces, err := trace.Split(events)
		if err != nil {
			t.Fatal(err)
		}
		for i := range traces {
			for _, what := range trace.Changes() {
				before := slices.Clone(traces[i].Events)
				c, ok := trace.Change(rnd, &traces[i], what)
				if !ok {
					continue
				}
				made[what]++
				if equalEvents(c.Events, before) || !equalEvents(traces[i].Events, before) {
					t.Fatalf("seed %d: change of %s: nothing, or the trace itself", seed, what)
				}
			}
		}
	}
	for _, what := range trace.Changes() {
		if made[what] == 0 {
			t.Errorf("%s is never changed", what)
		}
	}
}

func equalEvents(a, b []trace.Event) bool {
	return slices.EqualFunc(a, b, func(x, y trace.Event) bool { return x.String() == y.String() })
}
