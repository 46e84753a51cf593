// Package bench measures locks. A scenario is written once and runs on every
// implementation of [Client], interleaved with the others, in processes of its
// own. Every run yields counts and times, and a proof that no two holders were inside
// at once; a run in which they were is an error, not a number.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Client is a lock service as one process or one part of it uses it. It is safe
// for concurrent use.
type Client interface {
	// Lock waits until the caller holds name, or ctx ends.
	Lock(ctx context.Context, name string) (Held, error)
	// Close ends the client; nothing is held any more.
	Close() error
}

// Held is a lock that is held.
type Held interface {
	// Unlock releases it.
	Unlock() error
}

// Counter is a Client that knows what it asked of its store.
type Counter interface {
	Counts() Counts
}

// Counts are the requests and wake-ups since the beginning.
type Counts struct {
	Requests float64 `json:"requests"`           // commands, RPCs, statements: whatever the store counts
	Wakes    float64 `json:"wakes,omitempty"`    // waiters told that they hold, or that they should look
	Renewals float64 `json:"renewals,omitempty"` // requests that only renewed
	Renewed  float64 `json:"renewed,omitempty"`  // tickets in those
}

func (c Counts) less(b Counts) Counts {
	return Counts{c.Requests - b.Requests, c.Wakes - b.Wakes, c.Renewals - b.Renewals, c.Renewed - b.Renewed}
}

func (c Counts) plus(b Counts) Counts {
	return Counts{c.Requests + b.Requests, c.Wakes + b.Wakes, c.Renewals + b.Renewals, c.Renewed + b.Renewed}
}

// Spec says what is measured and where. It travels to worker processes.
type Spec struct {
	Name     string        `json:"name"`               // as shown: "holdfast", "redsync, 5 ms"
	Kind     string        `json:"kind"`               // as [Open] knows it
	Server   string        `json:"server"`             // where its store is
	Settings string        `json:"settings,omitempty"` // as shown
	Prefix   string        `json:"prefix"`             // of all names
	TTL      time.Duration `json:"ttl,omitempty"`      // 0 is the implementation's own
	Fresh    bool          `json:"fresh,omitempty"`    // no Contended comes before its runs

	// Beside are further clients, of a process of their own, that have locked
	// once and are idle since.
	Beside int `json:"beside,omitempty"`
}

// Seat is the place of a client among all clients of a run.
type Seat struct {
	Index, Of int
}

// Open makes a client of a Spec.
type Open func(ctx context.Context, s Spec, seat Seat) (Client, error)

// The kinds of scenarios.
const (
	Cycles = "cycles" // lock, work, unlock, again and again
	Idle   = "idle"   // hold many locks, and use another one meanwhile
	Crash  = "crash"  // a holder dies; how long until the next one holds
)

// Scenario is something that is measured.
type Scenario struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Kind  string `json:"kind"`

	Processes  int           `json:"processes"`
	Clients    int           `json:"clients"`             // in all processes together
	Goroutines int           `json:"goroutines"`          // of each client
	Shared     bool          `json:"shared"`              // one name for all, else each goroutine has its own
	Names      int           `json:"names,omitempty"`     // of each client, if not shared; its goroutines share them out. 0 is one for each
	Contended  int           `json:"contended,omitempty"` // goroutines that use each client at once, once, before it is measured
	Work       time.Duration `json:"work"`                // how long a lock is held
	Locks      int           `json:"locks,omitempty"`     // of Idle
	TTL        time.Duration `json:"ttl,omitempty"`       // of Idle and Crash
}

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	var all []Scenario
	for _, n := range []int{1, 64} {
		all = append(all, Scenario{Name: fmt.Sprintf("alone-%d", n), Kind: Cycles, Processes: 1, Clients: 1, Goroutines: n,
			Title: fmt.Sprintf("nobody else wants the lock, %s", many(n, "goroutine"))})
	}
	all = append(all, Scenario{Name: "alone-1-contended", Kind: Cycles, Processes: 1, Clients: 1, Goroutines: 1, Contended: 64,
		Title: "nobody else wants the lock, 1 goroutine after a crowd of 64"})
	for _, n := range []int{1, 64} {
		all = append(all, Scenario{Name: fmt.Sprintf("alone-%d-10000", n), Kind: Cycles, Processes: 1, Clients: 1, Goroutines: n, Names: 10000,
			Title: fmt.Sprintf("nobody else wants the lock, %s, 10,000 names", many(n, "goroutine"))})
	}
	for _, n := range []int{2, 16, 100, 1000} {
		for _, work := range []time.Duration{0, time.Millisecond} {
			all = append(all, Scenario{Name: "process-" + fmt.Sprint(n) + suffix(work), Kind: Cycles, Processes: 1, Clients: 1, Goroutines: n,
				Shared: true, Work: work, Title: fmt.Sprintf("one lock, %s of one process, %s", many(n, "goroutine"), inside(work))})
		}
	}
	all = append(all, Scenario{Name: "crowds", Kind: Cycles, Processes: 2, Clients: 2, Goroutines: 500, Shared: true,
		Title: "one lock, 2 processes of 500 goroutines, nothing done inside"})
	for _, n := range []int{2, 4, 8, 16, 64} {
		for _, work := range []time.Duration{0, time.Millisecond} {
			p := min(n, 4)
			all = append(all, Scenario{Name: "clients-" + fmt.Sprint(n) + suffix(work), Kind: Cycles, Processes: p, Clients: n, Goroutines: 1,
				Shared: true, Work: work, Title: fmt.Sprintf("one lock, %d clients in %d processes, %s", n, p, inside(work))})
		}
	}
	for _, n := range []int{1000, 10000} {
		all = append(all, Scenario{Name: fmt.Sprintf("held-%d", n), Kind: Idle, Processes: 1, Clients: 1, Goroutines: 1, Locks: n,
			TTL: 9 * time.Second, Title: fmt.Sprintf("%d locks held and renewed, TTL 9 s, while another is used", n)})
	}
	all = append(all, Scenario{Name: "crash", Kind: Crash, Processes: 2, Clients: 2, Goroutines: 1, Shared: true,
		TTL: 3 * time.Second, Title: "a holder is killed while another waits, TTL 3 s"})
	return all
}

func suffix(work time.Duration) string {
	if work == 0 {
		return ""
	}
	return "-" + work.String()
}

func inside(work time.Duration) string {
	if work == 0 {
		return "nothing done inside"
	}
	return fmt.Sprintf("held for %v", work)
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Choose returns the scenarios with these names.
func Choose(names []string) ([]Scenario, error) {
	all := Scenarios()
	var chosen []Scenario
	for _, name := range names {
		i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
		if i < 0 {
			var known []string
			for _, s := range all {
				known = append(known, s.Name)
			}
			return nil, fmt.Errorf("bench: there is no scenario %q, but %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// ErrOverlap is matched by the error of a run in which two held at once.
var ErrOverlap = errors.New("two held the lock at once")
