package torture

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asClient makes the test binary a client.
const asClient = "torture-client"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asClient {
		if err := Client(context.Background(), os.Stdin, os.Stdout); err != nil {
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
	goleak.VerifyTestMain(m)
}

// slack is for machines that do much else.
const slack = 10 * time.Second

func config(store string) Config {
	return Config{
		Store: store, Duration: 3 * time.Second, Processes: 3, Goroutines: 4, Names: 5,
		TTL: 500 * time.Millisecond, Seed: 1, Slack: slack, Repeat: "go test",
	}
}

// sound fails the test unless the run was long enough to mean something, and
// broke nothing.
func sound(t *testing.T, r Report, err error) {
	t.Helper()
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
}

func TestInOneProcess(t *testing.T) {
	t.Parallel()
	cfg := config("memory:" + t.Name())
	cfg.Faults = []string{Requests}
	r, err := Run(t.Context(), cfg)
	sound(t, r, err)
	if r.Faults[Requests] == 0 || r.Requests == 0 {
		t.Error("no request was disturbed")
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
	r, err := Run(t.Context(), cfg)
	sound(t, r, err)
	if r.FaultCount() < 3 {
		t.Errorf("faults: %v", r.Faults)
	}
}
