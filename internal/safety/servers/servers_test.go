package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var (
	runFor   = flag.Duration("servers.for", 4*time.Second, "how long each store is disturbed")
	seed     = flag.Uint64("servers.seed", 0, "decides the faults; 0 is that of the scenario")
	reports  = flag.String("servers.report", "", "file that gets a line of JSON for each run")
	history  = flag.String("servers.history", "", "folder that gets a file with all events of each run")
	load     = flag.Int("servers.load", 4, "goroutines in each client process")
	leaseFor = flag.Duration("servers.ttl", 0, "length of the leases, when not that of the scenario")
)

// asClient is the argument that makes the test binary a client.
const asClient = "torture-client"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asClient {
		if err := torture.Client(context.Background(), os.Stdin, os.Stdout, anylock.OpenDriver); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			syscall.Exit(1)
		}
		syscall.Exit(0) // at once: os.Exit lets the race detector sleep
	}
	// The runs mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	servers.Main(m)
}

// scenario is a store together with the faults of its servers.
type scenario struct {
	name  string
	start func(t *testing.T, rnd *faultSource) deployment
	seed  uint64
	ttl   time.Duration // 0 is 2 s
	// exposed names the checks whose findings are counted, for scenarios that
	// go beyond the store's promises.
	exposed []string
	bites   bool // a soak without such findings has missed its fault
	long    int  // see torture.Config
}

// deployment is a store that has been started.
type deployment struct {
	url string
	own []torture.Fault
	of  func(client int) string // the URL of one client, if not url
	on  []*servers.Host         // the host of each client, if not the test's
	// counts are the effects of the faults, for the report.
	counts map[string]*atomic.Int64
}

// clients is the number of client processes.
const clients = 3

// leastGrants is the number of grants below which a run proves nothing.
const leastGrants = 20

// outcome is a line of the file of reports.
type outcome struct {
	Scenario string         `json:"scenario"`
	TTL      string         `json:"ttl"`
	Race     bool           `json:"race"`
	Report   torture.Report `json:"report"`
	// Counts are the effects of the faults on the servers, one for each count
	// of the scenario.
	Counts map[string]int64 `json:"counts,omitempty"`
}

var reporting sync.Mutex

func (s scenario) run(t *testing.T) torture.Report {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if *seed > 0 {
		s.seed = *seed
	}
	cfg := torture.Config{
		Duration: *runFor, Processes: clients, Goroutines: *load, Names: 5, TTL: s.ttl, Seed: s.seed, Slack: 10 * time.Second,
		Faults: torture.Kinds(), Exposed: s.exposed, Long: s.long, Open: anylock.OpenDriver, Command: []string{self, asClient},
		Repeat: fmt.Sprintf("go test ./internal/safety/servers -run '%s$' -v -timeout 0 -servers.for %v -servers.seed %d -servers.load %d",
			t.Name(), *runFor, s.seed, *load),
	}
	if cfg.TTL == 0 {
		cfg.TTL = 2 * time.Second
	}
	if *leaseFor > 0 {
		cfg.TTL = *leaseFor
		cfg.Repeat += fmt.Sprintf(" -servers.ttl %v", cfg.TTL)
	}
	sc := s.start(t, newDice(s.seed))
	cfg.Store, cfg.Own, cfg.StoreOf = sc.url, sc.own, sc.of
	if *history != "" {
		f, err := os.Create(filepath.Join(*history, strings.ReplaceAll(t.Name(), "/", "-")+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		cfg.History = f
	}
	if sc.on != nil {
		cfg.CommandOf = func(client int) []string { return sc.on[client].Command(cfg.Command...) }
	}
	r, err := torture.Run(t.Context(), cfg)
	for err == nil && r.Grants < leastGrants && len(r.Violations) == 0 && cfg.Duration < 4**runFor {
		cfg.Duration *= 2 // on a machine under other load
		r, err = torture.Run(t.Context(), cfg)
	}
	if err != nil {
		t.Fatalf("seed %d: %v; again: %s", s.seed, err, cfg.Repeat)
	}
	counts := make(map[string]int64)
	for name, n := range sc.counts {
		counts[name] = n.Load()
		if n.Load() == 0 && r.Seconds >= enough.Seconds() {
			t.Errorf("%s: never, in %v", name, r.Faults)
		}
	}
	line, err := json.Marshal(outcome{t.Name(), cfg.TTL.String(), raceEnabled, r, counts})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", line)
	if *reports != "" {
		s.report(t, line)
	}
	for _, v := range r.Violations {
		t.Error(v)
	}
	if r.Grants < leastGrants || r.Released == 0 {
		t.Errorf("%d calls, %d grants, %d released", r.Calls, r.Grants, r.Released)
	}
	return r
}

func (s scenario) report(t *testing.T, line []byte) {
	reporting.Lock()
	defer reporting.Unlock()
	f, err := os.OpenFile(*reports, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(bytes.Join([][]byte{line, nil}, []byte("\n"))); err != nil {
		t.Fatal(err)
	}
}

// soak is the length of a run for scenarios that take long to start, or whose
// faults happen seldom. enough is the length at which the scenario's own faults
// have happened.
const (
	soak   = 30 * time.Second
	enough = 2 * time.Minute
)

func play(t *testing.T, all []scenario) {
	for _, s := range all {
		if len(s.exposed) > 0 && !s.bites && *runFor < soak {
			continue // its faults strike too seldom for a build
		}
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			r := s.run(t)
			if s.bites && *runFor >= soak && r.Exposed["C1"] == 0 {
				t.Error("nothing overlapped, and nobody was refused: the faults did not do what they are there for")
			}
		})
	}
}

// TestSafe checks that a store survives the faults that it promises to survive.
func TestSafe(t *testing.T) { play(t, safe) }

// TestExposed checks that faults beyond a store's promises may let two clients
// hold at once, but never let a stale write pass.
func TestExposed(t *testing.T) { play(t, exposed) }

// TestEnsembles is TestSafe on several servers, in soaks only.
func TestEnsembles(t *testing.T) {
	if *runFor < soak {
		t.Logf("left out: they take longer to start than a build has; say -servers.for %v", soak)
		return
	}
	play(t, ensembles)
}

// TestNetworks is TestSafe with clients whose networks are split, in soaks
// only: it needs the rights of root.
func TestNetworks(t *testing.T) {
	if *runFor < soak {
		t.Logf("left out: networks are for soaks, and for root; say -servers.for %v", soak)
		return
	}
	play(t, networks)
}

// TestSplits is TestSafe, and TestExposed, with members of ensembles that are
// cut off from each other, in soaks only: it needs the rights of root.
func TestSplits(t *testing.T) {
	if *runFor < soak {
		t.Logf("left out: networks are for soaks, and for root; say -servers.for %v", soak)
		return
	}
	t.Run("safe", func(t *testing.T) { play(t, splits) })
	t.Run("exposed", func(t *testing.T) { play(t, islands) })
}

// TestFailovers is TestExposed on several servers, in soaks only.
func TestFailovers(t *testing.T) {
	if *runFor < soak {
		t.Logf("left out: they take longer to start than a build has; say -servers.for %v", soak)
		return
	}
	play(t, failovers)
}
