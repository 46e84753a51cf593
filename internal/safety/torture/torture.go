// Package torture runs many processes against a store, disturbs them, and has
// package checker judge the history.
//
// The calling program starts itself again as clients. Each client has
// goroutines that take locks of every kind, in every way: wait, wait for a
// time, wait and give up, try. A mutex or a write lock protects a number in a
// register that lives in the first process. A seed decides which client is
// stopped past its lease, killed and started again, or has its requests lost,
// held and doubled. The store itself is disturbed only by faults of the caller,
// see [Fault]. A run ends by itself: faults are healed, clients finish, a fresh
// client takes each name, and the remaining places are read from the store.
package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// The kinds of faults.
const (
	Pause    = "pause"    // a client is stopped, usually past its lease
	Kill     = "kill"     // a client is killed, and another is started in its place
	Requests = "requests" // a client's requests and pushes are lost, held, doubled and refused
)

// Kinds returns all kinds of faults.
func Kinds() []string { return []string{Pause, Kill, Requests} }

// Config has the settings of a run. A zero number is not allowed, unless its
// field gives it a meaning.
type Config struct {
	Store      string        // a URL that Open knows
	Duration   time.Duration // the time until faults are healed; the end takes some TTLs more
	Processes  int
	Goroutines int // in each process
	Names      int // the number of locks
	TTL        time.Duration
	Seed       uint64
	Faults     []string      // of Kinds; without any, and without Own, the run has no faults
	Slack      time.Duration // see check.Rules
	Long       int           // how many of 1000 holds last longer than most of a lease; 0 is 8
	Pace       float64       // how much more often faults come, and how much shorter they are; 0 is 1

	// Own are more kinds of faults, for callers that control the store's
	// servers.
	Own []Fault
	// Exposed names checks whose findings are counted and are no violations,
	// because the faults of Own go beyond what the store promises to survive;
	// see check.Rules.
	Exposed []string
	// StoreOf returns the URL with which a client reaches the store, if clients
	// have different ways to it. Nil is Store for all.
	StoreOf func(client int) string

	// Command starts a client: a program and its arguments. The program calls
	// Client with its standard input and output. Without a Command, clients run
	// in this process, and Requests are the only faults.
	Command []string
	// CommandOf returns the Command of one client, if commands differ: each
	// client may have a network of its own. Nil is Command for all.
	CommandOf func(client int) []string
	// Open opens the store by its URL.
	Open func(ctx context.Context, url string) (driver.Driver, error)
	// Repeat is the command for running the test again, for the report.
	Repeat string

	// Begun is called before the first client starts, with a checked Config and
	// its defaults. It may be nil.
	Begun func(Config)
	// Healed is called when the faults of the plan have ended, before the clients
	// finish: a caller that disturbs them by other means ends that. It may be nil.
	Healed func()

	History  io.Writer      // receives all events as JSON lines; may be nil
	Progress func(Snapshot) // called every second; may be nil

	names  []lockName    // made by check
	prefix string        // of names in the store
	traits driver.Traits // of the store

	patient time.Duration // replaces maxWait, for tests that plant bugs
}

// DefaultTTL is the lease of a Config without a TTL: short, so that a run has
// many faults.
const DefaultTTL = 2 * time.Second

// Snapshot is the state of a run.
type Snapshot struct {
	Elapsed    time.Duration
	Phase      string // "run", "drain", "probe"
	Active     []string
	Stats      checker.Stats
	Violations int
}

// Report is the result of a run. It marshals to JSON as a summary.
type Report struct {
	Seed       uint64           `json:"seed"`
	Seconds    float64          `json:"seconds"`
	Calls      int64            `json:"calls"`
	Grants     int64            `json:"grants"`
	Released   int64            `json:"released"`
	Timeouts   int64            `json:"waits_ended"`
	Busy       int64            `json:"tries_refused"`
	Errors     int64            `json:"store_errors"`
	Unknown    int64            `json:"unknown"`
	Lost       int64            `json:"lost"`
	Faults     map[string]int64 `json:"faults"`
	Requests   int64            `json:"requests_disturbed"`
	Overlaps   int64            `json:"overlaps"`
	Overlap    float64          `json:"longest_overlap_seconds"`
	Exposed    map[string]int64 `json:"exposed,omitempty"` // findings that are no violations, by check
	Wait       float64          `json:"longest_wait_seconds"`
	Probe      float64          `json:"longest_probe_seconds"`
	Writes     int64            `json:"guarded_writes"`
	Stale      int64            `json:"stale_writes_stopped"`
	Corrupted  int64            `json:"twin_writes_lost"`
	Ordered    int64            `json:"waits_judged_for_order"`
	Slices     int64            `json:"slices"`
	Violations []string         `json:"violations"` // each with its calls and the faults around it
	More       int              `json:"more_violations,omitempty"`
	Repeat     string           `json:"repeat"`
}

// OK reports whether no promise was broken.
func (r Report) OK() bool { return len(r.Violations) == 0 }

// FaultCount returns the number of faults of all kinds.
func (r Report) FaultCount() (n int64) {
	for _, f := range r.Faults {
		n += f
	}
	return n
}

// lockName is one of the locks of a run.
type lockName struct {
	name  string
	limit int64
	alone bool // one goroutine of each process uses it, so that order is judged
}

// permits is the size of the semaphores.
const permits = 3

func namesOf(n, goroutines int) []lockName {
	names := make([]lockName, n)
	for i := range names {
		l := lockName{fmt.Sprintf("mutex-%d", i), 1, i == 0 && (n > 1 || goroutines == 1)}
		if i > 0 {
			switch i % 3 {
			case 2:
				l = lockName{fmt.Sprintf("rw-%d", i), driver.RWLimit, false}
			case 0:
				l = lockName{fmt.Sprintf("semaphore-%d", i), permits, false}
			}
		}
		names[i] = l
	}
	return names
}

// check refuses a bad Config, and reads the store's traits.
func (c *Config) check(ctx context.Context) (*holdfast.Client, error) {
	switch {
	case c.Duration <= 0:
		return nil, fmt.Errorf("torture: a duration of %v", c.Duration)
	case c.Processes < 1 || c.Goroutines < 1 || c.Names < 1:
		return nil, fmt.Errorf("torture: %d processes, %d goroutines, %d names: each must be at least 1", c.Processes, c.Goroutines, c.Names)
	case c.Open == nil:
		return nil, errors.New("torture: nothing opens the store")
	case c.Slack < 0:
		return nil, fmt.Errorf("torture: a slack of %v", c.Slack)
	}
	if c.Pace < 0 {
		return nil, fmt.Errorf("torture: a pace of %v", c.Pace)
	}
	if err := c.checkOwn(); err != nil {
		return nil, err
	}
	for _, f := range c.Faults {
		if !slices.Contains(Kinds(), f) {
			return nil, fmt.Errorf("torture: there is no fault %q, but %s", f, strings.Join(Kinds(), ", "))
		}
		if len(c.Command) == 0 && f != Requests {
			return nil, fmt.Errorf("torture: %s needs clients in processes of their own", f)
		}
	}
	d, err := c.Open(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	if c.TTL == 0 {
		t := d.Traits()
		if c.TTL = max(DefaultTTL, t.MinTTL); t.MaxTTL > 0 {
			c.TTL = min(c.TTL, t.MaxTTL)
		}
	}
	c.prefix = fmt.Sprintf("holdfast-torture/%d-%x/", c.Seed, checker.Now())
	client, err := holdfast.New(d, holdfast.WithTTL(c.TTL), holdfast.WithPrefix(c.prefix))
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	c.traits = client.Traits()
	c.names = namesOf(c.Names, c.Goroutines)
	if c.Long == 0 {
		c.Long = 8
	}
	if !c.traits.Shared {
		for i := range c.names {
			c.names[i].limit, c.names[i].name = 1, fmt.Sprintf("mutex-%d", i)
		}
	}
	return client, nil
}
