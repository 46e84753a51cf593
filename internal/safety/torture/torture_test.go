package torture

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/memlock"
)

// asClient is the argument that makes the test binary a client.
const asClient = "torture-client"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asClient {
		if err := Client(context.Background(), os.Stdin, os.Stdout, anylock.OpenDriver); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			syscall.Exit(1)
		}
		syscall.Exit(0) // at once: os.Exit lets the race detector sleep
	}
	// The runs wait most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	servers.Main(m)
}

// slack is for machines under other load.
const slack = 10 * time.Second

func config(store string) Config {
	return Config{
		Store: store, Duration: 3 * time.Second, Processes: 3, Goroutines: 4, Names: 5,
		TTL: 500 * time.Millisecond, Seed: 1, Slack: slack, Open: anylock.OpenDriver, Repeat: "go test",
	}
}

// sound runs the plan, and fails the test unless that broke no promise. On a
// machine that does much else a run may be too short to be meaningful, or to meet
// so many faults: then a longer one follows.
func sound(t *testing.T, cfg Config, leastFaults int64) Report {
	t.Helper()
	r, err := Run(t.Context(), cfg)
	for err == nil && len(r.Violations) == 0 && (r.Grants < 20 || r.Released == 0 || r.FaultCount() < leastFaults) && cfg.Duration < time.Minute {
		cfg.Duration *= 3
		r, err = Run(t.Context(), cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	for _, v := range r.Violations {
		t.Error(v)
	}
	if r.Grants < 20 || r.Calls < r.Grants || r.Released == 0 {
		t.Errorf("%d calls, %d grants, %d released", r.Calls, r.Grants, r.Released)
	}
	if r.FaultCount() < leastFaults {
		t.Errorf("faults: %v, want %d", r.Faults, leastFaults)
	}
	return r
}

func TestRunInOneProcess(t *testing.T) {
	t.Parallel()
	cfg := config("memory:" + t.Name())
	cfg.Faults = []string{Requests}
	for !certain(cfg) {
		cfg.Seed++
	}
	if r := sound(t, cfg, 1); r.Faults[Requests] == 0 || r.Requests == 0 {
		t.Error("no request was disturbed")
	}
}

// certain reports whether nearly every request of some client meets a fault for
// more than half of a run. Other plans may meet none: a slow machine renews
// rarely, has few pushes, and stands still for a while.
func certain(c Config) bool {
	var long time.Duration
	for _, s := range c.Plan() {
		p, err := faults.Parse(s.Plan)
		if err == nil && slices.ContainsFunc(p.Rules, func(r faults.Rule) bool { return r.On == faults.Any && r.Odds > 90 }) {
			long += s.For
		}
	}
	return long > c.Duration/2
}

// TestFaultAfterFault checks that a fault which begins before the last one has
// ended on the client is separate: requests that the last one holds are waited
// for separately.
func TestFaultAfterFault(t *testing.T) {
	d := newDisturbedDriver(memlock.Open(""))
	ask := func() error {
		_, err := d.Join(t.Context(), &driver.Ticket{ID: "00000000-0000-4000-8000-000000000001:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute}, true)
		return err
	}
	refuses := faults.Plan{Rules: []faults.Rule{{On: faults.Join, Do: faults.Refuse}}}
	d.begin(refuses)
	first := d.lift()
	d.begin(refuses)
	if met := first.end(); met != 0 {
		t.Errorf("the first met %d requests", met)
	}
	if ask() == nil {
		t.Error("the end of the first was that of the second")
	}
	if met := d.lift().end(); met != 1 {
		t.Errorf("the second met %d requests", met)
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestHealedEndsOtherFaults loses requests below the clients until Healed is called: by then
// the plan's faults have ended, and neither those who finish nor the client that takes each
// name at the end lose one.
func TestHealedEndsOtherFaults(t *testing.T) {
	t.Parallel()
	cfg := config("memory:" + t.Name())
	cfg.Duration = time.Second
	var (
		mu     sync.Mutex
		lossy  []*faults.Driver
		healed int
	)
	cfg.Open = func(ctx context.Context, url string) (driver.Driver, error) {
		d, err := anylock.OpenDriver(ctx, url)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || healed > 0 {
			return d, err
		}
		f := faults.Wrap(d, faults.Plan{Seed: uint64(len(lossy)), Rules: []faults.Rule{{Odds: 60, Do: faults.CutRequest, For: cfg.TTL}}})
		lossy = append(lossy, f)
		return f, nil
	}
	cfg.Healed = func() {
		mu.Lock()
		defer mu.Unlock()
		healed++
		for _, f := range lossy {
			f.Heal()
		}
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	for _, f := range lossy {
		cut += f.Applied()[0]
	}
	if healed != 1 || len(lossy) != cfg.Processes+1 || cut < 3 {
		t.Errorf("healed %d times, %d of %d clients were cut off, %d requests", healed, len(lossy), cfg.Processes+1, cut)
	}
	for _, v := range r.Violations {
		t.Error(v)
	}
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	cfg := config("sqlite:" + filepath.Join(t.TempDir(), "locks.db"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Command, cfg.Faults = []string{self, asClient}, Kinds()
	cfg.Duration, cfg.TTL = 6*time.Second, time.Second
	sound(t, cfg, 3)
}
