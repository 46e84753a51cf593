package faults_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

func ExamplePlan() {
	plan, err := faults.Parse("join 1: lose answer")
	if err != nil {
		fmt.Println(err)
	}
	d := faults.Wrap(memlock.Open(""), plan)
	defer d.Close()
	t := &driver.Ticket{ID: "a:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute}
	_, err = d.Join(bg, t, true)
	fmt.Println(err)
	p, err := d.Join(bg, t, true)
	fmt.Println(p.State, err)
	fmt.Println(d.Log()[0])
	// Output:
	// outcome unknown: lost on the way, as planned
	// held <nil>
	// join 1 of a:1: join 1: lose answer
}

func ticket(id string) *driver.Ticket {
	return &driver.Ticket{ID: id, Name: "n", Units: 1, Limit: 1, TTL: 10 * time.Second}
}

// bubble runs f with two clients of one store, the first one with a plan.
func bubble(t *testing.T, plan string, f func(t *testing.T, d *faults.Driver, other *memlock.Driver)) {
	t.Run(plan, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, err := faults.Parse(plan)
			if err != nil {
				t.Fatal(err)
			}
			if p.String() != plan {
				t.Errorf("printed as %q", p)
			}
			s := memlock.NewStore()
			d, other := faults.Wrap(memlock.New(s), p), memlock.New(s)
			f(t, d, other)
			if err := errors.Join(d.Close(), other.Close()); err != nil {
				t.Error(err)
			}
		})
	})
}

func waiting(t *testing.T, d driver.Driver) []string {
	t.Helper()
	l, err := d.Inspect(bg, "n")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range l.Tickets {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestRequestEffectsChangeOutcome(t *testing.T) {
	unknown := func(t *testing.T, err error) {
		t.Helper()
		if driver.ClassOf(err) != driver.Unknown || !errors.Is(err, faults.ErrLost) {
			t.Errorf("error is %v", err)
		}
	}
	took := func(t *testing.T, want time.Duration, f func()) {
		t.Helper()
		start := time.Now()
		if f(); time.Since(start) != want {
			t.Errorf("took %v, want %v", time.Since(start), want)
		}
	}
	bubble(t, "join 1: cut request 3s", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		took(t, 3*time.Second, func() {
			_, err := d.Join(bg, ticket("a:1"), true)
			unknown(t, err)
		})
		if ids := waiting(t, other); len(ids) > 0 {
			t.Errorf("it arrived: %v", ids)
		}
		if p, err := d.Join(bg, ticket("a:1"), true); err != nil || p.State != driver.Held {
			t.Error(p, err)
		}
	})
	bubble(t, "any: lose answer", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		_, err := d.Join(bg, ticket("a:1"), true)
		unknown(t, err)
		if ids := waiting(t, other); len(ids) != 1 {
			t.Errorf("it did not arrive")
		}
		_, err = d.Inspect(bg, "n")
		unknown(t, err)
		for _, err := range d.Names(bg, "") {
			unknown(t, err)
		}
		unknown(t, d.Break(bg, "n", "a:1"))
		if ids := waiting(t, other); len(ids) != 0 {
			t.Errorf("it did not arrive")
		}
	})
	bubble(t, "leave 1: hold request 5s; join 2: hold request 2s", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		a := ticket("a:1")
		if _, err := d.Join(bg, a, true); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		took(t, time.Second, func() {
			_, err := d.Leave(ctx, []driver.Ref{{Ticket: a}})
			unknown(t, err)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		if ids := waiting(t, other); len(ids) != 1 {
			t.Errorf("it arrived too early")
		}
		took(t, 2*time.Second, func() {
			if p, err := d.Join(bg, ticket("a:2"), true); err != nil || p.State != driver.Waiting {
				t.Error(p, err)
			}
		})
		time.Sleep(3 * time.Second)
		if ids := waiting(t, other); !slices.Equal(ids, []string{"a:2"}) {
			t.Errorf("the line is %v", ids)
		}
	})
	// A request that is held back arrives when the driver is closed.
	bubble(t, "join: hold request 5h0m0s", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err := d.Join(ctx, ticket("a:1"), true)
		unknown(t, err)
		took(t, 0, func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		if ids := waiting(t, other); len(ids) != 1 {
			t.Errorf("it did not arrive")
		}
		if _, err := d.Join(bg, ticket("a:2"), true); !errors.Is(err, driver.ErrClosed) {
			t.Error(err)
		}
	})
	bubble(t, "join: hold answer 5s", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		took(t, 5*time.Second, func() {
			if p, err := d.Join(bg, ticket("a:1"), true); err != nil || p.State != driver.Held {
				t.Error(p, err)
			}
		})
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		took(t, time.Second, func() {
			_, err := d.Join(ctx, ticket("a:2"), true)
			unknown(t, err)
		})
		if ids := waiting(t, other); len(ids) != 2 {
			t.Errorf("it did not arrive")
		}
	})
	bubble(t, "leave: double", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		a := ticket("a:1")
		if _, err := d.Join(bg, a, true); err != nil {
			t.Error(err)
		}
		if ps, err := d.Leave(bg, []driver.Ref{{Ticket: a}}); err != nil || ps[0].State != driver.Gone {
			t.Error(ps, err)
		}
	})
	bubble(t, "join 2-3: refuse", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		for i := range 4 {
			_, err := d.Join(bg, ticket("a:1"), true)
			if (driver.ClassOf(err) == driver.Unavailable) != (i == 1 || i == 2) {
				t.Errorf("join %d: %v", i+1, err)
			}
		}
		if met := d.Applied(); met[0] != 2 || len(d.Log()) != 2 {
			t.Errorf("met %v, log %v", met, d.Log())
		}
	})
}

func TestRulesApplyWithinTheirTimes(t *testing.T) {
	bubble(t, "join for 12s: not ready 2s", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		for i := range 3 {
			_, err := d.Join(bg, ticket("a:1"), true)
			if after, ok := driver.IsNotReady(err); ok != (i < 2) || ok && after != 2*time.Second {
				t.Errorf("after %d times 6 s: %v", i, err)
			}
			time.Sleep(6 * time.Second)
		}
	})
	bubble(t, "join: crowd 1s", func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 5 {
			wg.Go(func() {
				if _, err := d.Join(bg, ticket(fmt.Sprint("a:", i)), true); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("five at once took %v", took)
		}
		if _, err := d.Join(bg, ticket("a:9"), true); err != nil || time.Since(start) != 6*time.Second {
			t.Errorf("one more: %v after %v", err, time.Since(start))
		}
	})
}

func TestPushEffectsChangeDelivery(t *testing.T) {
	for plan, want := range map[string]string{
		"":             "a b c d",
		"push 2: drop": "a c d", "push 2: repeat": "a b b c d", "push 2: gap": "a gap c d",
		"push 2: swap": "a c b d", "push 2-3: swap": "a b d c", "push 4: swap": "a b c",
		"push 1: late 5s": "b c d a", "push 1: late 5h0m0s": "b c d",
	} {
		bubble(t, plan, func(t *testing.T, d *faults.Driver, other *memlock.Driver) {
			var mu sync.Mutex
			var got []string
			if err := d.Watch(bg, func(id string, p driver.Status) {
				mu.Lock()
				defer mu.Unlock()
				if id == "" {
					id = "gap"
				}
				got = append(got, id)
			}); err != nil {
				t.Fatal(err)
			}
			ids := []string{"a", "b", "c", "d"}
			if _, err := other.Join(bg, ticket("first"), true); err != nil {
				t.Error(err)
			}
			for _, id := range ids {
				if _, err := d.Join(bg, ticket(id), true); err != nil {
					t.Error(err)
				}
			}
			for _, id := range append([]string{"first"}, ids[:3]...) {
				if _, err := other.Leave(bg, []driver.Ref{{Ticket: ticket(id)}}); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if s := strings.Join(got, " "); s != want {
				t.Errorf("pushes of %q, want %q", s, want)
			}
		})
	}
}

func TestPlansReadBack(t *testing.T) {
	for seed := range uint64(200) {
		p := faults.Random(seed, 10, time.Minute)
		q, err := faults.Parse(p.String())
		if err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("%v was read back as %v: %v", p, q, err)
		}
	}
	for _, wrong := range []string{"join", "join: sing", "dance: drop", "join: drop", "push: cut request", "join 0: refuse", "join 3-2: refuse", "join 0%: refuse",
		"join 101%: refuse", "join x: refuse", ": refuse", "join: refuse 5", "join: refuse; seed 3", "seed x", "join: refuse;", "join for: refuse", "join for -1s: refuse", "join for x: refuse"} {
		if p, err := faults.Parse(wrong); err == nil {
			t.Errorf("%q is read as %q", wrong, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	for seed := range uint64(5) {
		f.Add(faults.Random(seed, 10, time.Minute).String())
	}
	f.Add("seed 1; push 1-2 3%: late 1ns")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := faults.Parse(s)
		if err != nil {
			return
		}
		q, err := faults.Parse(p.String())
		if err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("%q is read as %#v, printed as %q, and read again as %#v: %v", s, p, p, q, err)
		}
	})
}

// TestOddsRepeat checks that a plan with odds applies to the same requests every
// time.
func TestOddsRepeat(t *testing.T) {
	var first []string
	for range 3 {
		d := faults.Wrap(memlock.Open(""), faults.Plan{Seed: 5, Rules: []faults.Rule{{On: faults.Renew, Odds: 30, Do: faults.Refuse}}})
		for range 200 {
			_, _ = d.Renew(bg, []driver.Ref{{Ticket: ticket("a:1")}})
		}
		log := d.Log()
		if n := len(log); n < 30 || n > 90 {
			t.Errorf("30 %% of 200 are %d", n)
		}
		if first == nil {
			first = log
		} else if !slices.Equal(first, log) {
			t.Errorf("the plan met other requests")
		}
		_ = d.Close()
	}
}

// TestEmptyPlanChangesNothing checks that the suite passes under a plan without
// rules.
func TestEmptyPlanChangesNothing(t *testing.T) {
	drivertest.RunBubbles(t, func(t drivertest.T) drivertest.Harness {
		s := memlock.NewStore()
		return drivertest.Harness{
			Open: func(drivertest.T) driver.Driver { return faults.Wrap(memlock.New(s), faults.Plan{}) },
			TTL:  30 * time.Second,
		}
	})
}

// TestDoubledRequestThatIsLate carries a Join out twice over a way that delays the first
// one beyond its caller's context: that the second one was not carried out says nothing of
// the ticket, which then has a place.
func TestDoubledRequestThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlock.NewStore()
		late := faults.Wrap(memlock.New(s), faults.Plan{Rules: []faults.Rule{{On: faults.Join, Do: faults.HoldRequest, For: time.Second}}})
		d := faults.Wrap(late, faults.Plan{Rules: []faults.Rule{{On: faults.Join, Do: faults.Double}}})
		ctx, cancel := context.WithTimeout(bg, time.Second/2)
		defer cancel()
		if st, err := d.Join(ctx, ticket("a:1"), true); err == nil || driver.ClassOf(err) != driver.Unknown {
			t.Errorf("%+v, %v: want an unknown outcome", st, err)
		}
		time.Sleep(time.Second)
		if got := waiting(t, d); !slices.Equal(got, []string{"a:1"}) {
			t.Errorf("tickets %v, want the late one", got)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestGateOpensWithTheLastShut shuts a gate twice: it opens when both are over, or by Open.
func TestGateOpensWithTheLastShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g faults.Gate
		passed := func() error {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			return g.Pass(ctx)
		}
		first, second := g.Shut(), g.Shut()
		second()
		second()
		if err := passed(); !g.IsShut() || driver.ClassOf(err) != driver.Unknown {
			t.Errorf("it passes after one of two: %v", err)
		}
		time.AfterFunc(time.Second/2, first)
		if err := passed(); g.IsShut() || err != nil {
			t.Errorf("it does not open: %v", err)
		}
		old := g.Shut()
		g.Open()
		g.Shut()
		old()
		if err := passed(); err == nil {
			t.Error("what an earlier Open has ended opens it")
		}
	})
}
