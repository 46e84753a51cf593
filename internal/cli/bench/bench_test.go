package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(t *testing.T, open Open, kind string) Config {
	return Config{
		Runs: 2, Duration: 100 * time.Millisecond, Open: open,
		Targets: []Target{{Spec: Spec{Name: kind, Kind: kind, Server: "memory:" + t.Name(), Prefix: "bench/"}, Role: RoleHoldfast, Store: "memory"}},
	}
}

// TestHoldfastOnMemory runs every scenario that one process can, and looks
// whether what comes out can be.
func TestHoldfastOnMemory(t *testing.T) {
	cfg := config(t, OpenHoldfast, Holdfast)
	for _, s := range Scenarios() {
		switch {
		case s.Kind == Crash:
			continue
		case s.Kind == Idle:
			s.Locks, s.TTL = 400, 600*time.Millisecond
		}
		if s.Name == "held-10000" || s.Goroutines == 100 {
			continue
		}
		cfg.Scenarios = append(cfg.Scenarios, s)
	}
	var steps []Step
	cfg.Progress = func(s Step) { steps = append(steps, s) }
	cfg.Skip = func(s Scenario) string {
		if s.Name == "crowds" {
			return "for a reason"
		}
		return ""
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Skipped["crowds"] != "for a reason" || len(r.Rows) != len(cfg.Scenarios)-1 {
		t.Errorf("%d rows of %d scenarios, skipped %v", len(r.Rows), len(cfg.Scenarios), r.Skipped)
	}
	if last := steps[len(steps)-1]; last.Done != len(steps)-1 || last.Steps != len(steps) {
		t.Errorf("the last of %d steps was %+v", len(steps), last)
	}
	all := cfg.Scenarios
	for _, row := range r.Rows {
		for impossible(row) && cfg.Duration < 4*time.Second { // too short on a machine with other work
			cfg.Duration *= 4
			cfg.Scenarios = slices.DeleteFunc(slices.Clone(all), func(s Scenario) bool { return s.Name != row.Scenario })
			again, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			row = again.Rows[0]
		}
		if impossible(row) {
			t.Errorf("%s: %d runs, %v", row.Scenario, len(row.Runs), row.Figures)
		}
	}
}

// impossible reports whether a row of Holdfast on memory has figures that no lock
// can have.
func impossible(row Row) bool {
	f := row.Figures
	if row.Scenario == "held-1000" {
		n := f["requests_per_100_renewed"].Median
		return n <= 0 || n > 10 || f["bytes_per_lock"].Median <= 0
	}
	switch {
	case len(row.Runs) != 2, f["per_s"].Min <= 0, f["allocs"].Median <= 0, f["lock_p50_us"].Median > f["lock_max_us"].Median:
		return true
	case strings.HasPrefix(row.Scenario, "alone"):
		return math.Abs(f["requests"].Median-2) > 0.1
	case row.Scenario == "process-1000": // some local hand-offs send no request, on the busiest machine too
		return f["requests"].Median >= 2
	case row.Scenario == "clients-2":
		return f["jain"].Median < 0.9 || f["handoff_p50_us"].Median <= 0
	}
	return false
}

// leaky is a lock that lets two in, now and then, unless it is sound.
type leaky struct {
	mu    sync.Mutex
	n     int
	sound atomic.Bool
}

func (l *leaky) Lock(context.Context, string) (Held, error) {
	l.mu.Lock()
	l.n++
	if l.n%5 == 0 && !l.sound.Load() {
		l.mu.Unlock()
		return nothing{}, nil
	}
	return unlocker{l}, nil
}

func (l *leaky) Close() error { return nil }

type unlocker struct{ l *leaky }

func (u unlocker) Unlock() error { u.l.mu.Unlock(); return nil }

type nothing struct{}

func (nothing) Unlock() error { return nil }

// TestOverlapIsCaught: a lock that does not exclude gives no figures, in one
// process and between two, and whether or not it is Holdfast.
func TestOverlapIsCaught(t *testing.T) {
	for _, name := range []string{"process-16-1ms", "process-16", "clients-8-1ms"} {
		for _, role := range []string{RoleHoldfast, RolePeer} {
			shared := new(leaky)
			cfg := config(t, func(context.Context, Spec, Seat) (Client, error) { return shared, nil }, "leaky")
			cfg.Targets[0].Role = role
			var err error
			if cfg.Scenarios, err = Choose([]string{name}); err != nil {
				t.Fatal(err)
			}
			r, err := Run(t.Context(), cfg)
			for err == nil && r.Rows[0].Failed == "" && cfg.Duration < 5*time.Second { // nobody was preempted inside
				cfg.Duration *= 4
				r, err = Run(t.Context(), cfg)
			}
			if role == RoleHoldfast && !errors.Is(err, ErrOverlap) {
				t.Errorf("%s: %v", name, err)
			}
			if role == RolePeer && err != nil {
				t.Errorf("%s, a peer: %v", name, err)
			}
			if row := r.Rows[0]; !strings.Contains(row.Failed, ErrOverlap.Error()) || len(row.Figures) != 0 {
				t.Errorf("%s: a row with %d figures, failed: %q", name, len(row.Figures), row.Failed)
			}
		}
	}
}

// TestLateOverlapDiscardsEarlierRuns: nor do the runs before the one in which two held.
func TestLateOverlapDiscardsEarlierRuns(t *testing.T) {
	shared := new(leaky)
	cfg := config(t, func(context.Context, Spec, Seat) (Client, error) { return shared, nil }, "leaky")
	cfg.Targets[0].Role = RolePeer
	cfg.Progress = func(s Step) { shared.sound.Store(s.Run < s.Of) }
	var err error
	if cfg.Scenarios, err = Choose([]string{"process-16-1ms"}); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if row := r.Rows[0]; !strings.Contains(row.Failed, ErrOverlap.Error()) || len(row.Runs) != 0 || len(row.Figures) != 0 {
		t.Errorf("a row of %d runs with %d figures, failed: %q", len(row.Runs), len(row.Figures), row.Failed)
	}
}

// TestOverlapOfRecords: what two processes noted is put on one clock.
func TestOverlapOfRecords(t *testing.T) {
	s := Scenario{Clients: 2, Goroutines: 1, Shared: true}
	apart := []record{{1, 30, 40, 41, 1, 1}, {1, 10, 20, 21, 0, 0}}
	if f, err := figuresOf(s, apart, 0, 100); err != nil || f["handoff_p50_us"] != 0.01 || f["acquisitions"] != 2 {
		t.Errorf("%v, %v", f, err)
	}
	if _, err := figuresOf(s, []record{{1, 30, 40, 41, 1, 1}, {1, 10, 31, 32, 0, 0}}, 0, 100); !errors.Is(err, ErrOverlap) {
		t.Errorf("an overlap: %v", err)
	}
}

func TestFairnessFigures(t *testing.T) {
	s := Scenario{Clients: 2, Goroutines: 2, Shared: true}
	// Of four, one got nothing and waits until the end; client 0 had three in a row.
	f, err := figuresOf(s, []record{
		{0, 10, 20, 20, 0, 0}, {0, 20, 30, 30, 1, 0}, {20, 30, 40, 40, 0, 0}, {0, 40, 50, 50, 2, 1}, {0, 0, 0, 0, 3, 1},
	}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if want := 16.0 / (4 * 6); math.Abs(f["jain"]-want) > 1e-9 {
		t.Errorf("Jain's index is %v, want %v", f["jain"], want)
	}
	if f["turn_max_grants"] != 3 || math.Abs(f["wait_max_over_mean"]-1000/20) > 1e-9 {
		t.Errorf("%v", f)
	}
}

func TestRecordsTravel(t *testing.T) {
	var buf bytes.Buffer
	want := []record{{1, 2, 3, 4, 5, 6}, {-1, 1 << 60, 0, 7, 8, 9}}
	p := newPipe(&buf, &buf)
	if err := p.send(&response{Records: 2, CPU: 7, records: want}); err != nil {
		t.Fatal(err)
	}
	a, err := p.response()
	if err != nil || a.CPU != 7 || fmt.Sprint(a.records) != fmt.Sprint(want) {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestRunEndsWithItsContext: when its context does, also while workers wait for a lock.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg := config(t, OpenHoldfast, Holdfast)
	cfg.Duration = time.Hour
	cfg.Progress = func(Step) { time.AfterFunc(50*time.Millisecond, func() { cancel(os.ErrDeadlineExceeded) }) }
	var err error
	if cfg.Scenarios, err = Choose([]string{"process-16-1ms"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(ctx, cfg); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Run: %v", err)
	}
}

func TestUnknownNamesAreErrors(t *testing.T) {
	if _, err := Choose([]string{"alone-1", "sideways"}); err == nil || !strings.Contains(err.Error(), `no scenario "sideways"`) {
		t.Errorf("Choose: %v", err)
	}
	cfg := config(t, OpenHoldfast, "peer")
	cfg.Scenarios, _ = Choose([]string{"alone-1"})
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `no implementation "peer"`) {
		t.Errorf("Run: %v", err)
	}
	cfg.Runs = 0
	if _, err := Run(t.Context(), cfg); err == nil {
		t.Error("no runs are no error")
	}
}

// TestSharedClock checks that every process of a run reads the clock that all share,
// because they compare their times.
func TestSharedClock(t *testing.T) {
	const slack = int64(50 * time.Microsecond)
	for range 100 {
		before := checker.Now()
		at := now()
		after := checker.Now()
		if at < before-slack || at > after+slack {
			t.Fatalf("%d is not between %d and %d", at, before, after)
		}
	}
}
