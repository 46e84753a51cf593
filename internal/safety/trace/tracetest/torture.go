// Package tracetest records the requests of a torture of stores, in tests of this
// module and of modules that keep a client library out of it.
//
// A test that uses it has the flags -trace.torture, -trace.torture-for,
// -trace.torture-seed and -trace.out.
package tracetest

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

var (
	tortured    = flag.String("trace.torture", "", "of which stores TestRecordTorture records a run, separated by commas; after cut= the clients lose their connections. Without any it is a store that the test chooses")
	tortureFor  = flag.Duration("trace.torture-for", 500*time.Millisecond, "how long each run disturbs its clients")
	tortureSeed = flag.Uint64("trace.torture-seed", 1, "the seed of the runs")
	out         = flag.String("trace.out", "", "a folder for the events, in a file for each source; without it they are only checked")
)

// TTL is the lease of recorded tortures, of which module Trace can count the parts.
const TTL = time.Second

// Opener opens one client of a store.
type Opener func(context.Context) (driver.Driver, error)

// Cutting cuts clients off while a torture disturbs them: not while they finish, nor the
// client that takes each name at the end.
type Cutting struct {
	ctx context.Context
	end context.CancelFunc
}

// Torture records a torture of each store of the flag, or else of the one that is named.
// It checks that the events can be written as a module, and writes them where the flag
// says. openerOf returns what opens a store of a name, which may begin with cut=.
func Torture(t *testing.T, store string, openerOf func(t *testing.T, name string, cutting *Cutting) Opener) {
	if *tortured != "" {
		store = *tortured
	}
	for name := range strings.SplitSeq(store, ",") {
		t.Run(name, func(t *testing.T) {
			if flawed(name) {
				t.Parallel() // these stores are in memory, and wait most of the time
			}
			ctx, end := context.WithCancel(context.Background())
			cutting := &Cutting{ctx, end}
			events, report := record(t, name, openerOf(t, name, cutting), cutting)
			if !flawed(name) && !report.OK() {
				t.Errorf("%q", report.Violations)
			}
			t.Logf("%d events of %d calls and %d disturbed requests", len(events), report.Calls, report.Requests)
			check(t, name, events)
			if report.Grants == 0 {
				t.Errorf("%d calls without a grant", report.Calls)
			}
			Write(t, name, events)
		})
	}
}

// flawed reports whether a store of a name has a flaw. RedLock on nodes with a flaw has
// none where that is empty: a mistake may be made in its driver.
func flawed(name string) bool { return strings.Contains(name, "flaw=") }

// check checks that events can be written as a module.
func check(t *testing.T, name string, events []trace.Event) {
	traces, err := trace.Split(events)
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for i := range traces {
		cut, grow := trace.Cut(&traces[i])
		if !grow && !flawed(name) {
			t.Errorf("tokens of %q do not grow", traces[i].Name)
		}
		parts += len(cut)
		for j := range cut {
			if err := trace.Module(&strings.Builder{}, "Recorded", []*trace.Trace{&cut[j]}); err != nil {
				t.Error(err)
			}
		}
	}
	if len(traces) == 0 || parts < len(traces) {
		t.Errorf("%d traces in %d parts", len(traces), parts)
	}
}

// record runs a torture of a store whose clients are in this process, with a recorder
// below the faults of their requests.
func record(t *testing.T, name string, open Opener, cutting *Cutting) ([]trace.Event, torture.Report) {
	defer cutting.end()
	r := trace.NewServerRecorder(*tortureSeed)
	if strings.HasPrefix(name, "cut=") {
		r = trace.NewCutRecorder(*tortureSeed)
	}
	names := 4
	if flawed(name) {
		names = 2 // more clients meet at each, so that more flaws show
	}
	report, err := torture.Run(context.Background(), torture.Config{
		Store: name, Duration: *tortureFor, Processes: 3, Goroutines: 2, Names: names, TTL: TTL, Seed: *tortureSeed,
		Faults: []string{torture.Requests}, Slack: 10 * time.Second, Repeat: "go test", Healed: cutting.end,
		Open: func(ctx context.Context, _ string) (driver.Driver, error) {
			d, err := open(ctx)
			for try := 0; err != nil && driver.ClassOf(err) != driver.Refused && try < 10; try++ { // cut as well
				d, err = open(ctx)
			}
			if err != nil {
				return nil, err
			}
			return r.Wrap(d), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Events(), report
}

// ByPlan returns what opens the same store for clients whose requests and answers are
// lost and late. Joins are late often enough to arrive after their tickets have left.
func (c *Cutting) ByPlan(open Opener) Opener {
	return func(ctx context.Context) (driver.Driver, error) {
		d, err := open(ctx)
		if err != nil || c.ctx.Err() != nil {
			return d, err
		}
		f := faults.Wrap(d, faults.Plan{Seed: *tortureSeed, Rules: []faults.Rule{
			{On: faults.Join, Odds: 15, Do: faults.HoldRequest, For: TTL / 3},
			{Odds: 3, Do: faults.LoseAnswer}, {Odds: 3, Do: faults.CutRequest}, {Odds: 3, Do: faults.HoldRequest, For: TTL / 3},
		}})
		context.AfterFunc(c.ctx, f.Heal)
		return f, nil
	}
}

// ByProxy returns the address of a proxy before a server, which cuts connections in the
// middle of calls.
func (c *Cutting) ByProxy(t *testing.T, addr string) string {
	p := faultproxy.Between(t, addr)
	rnd := rand.New(rand.NewPCG(*tortureSeed, 0))
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for c.ctx.Err() == nil {
			p.Arm(1+rnd.IntN(40), []faultproxy.When{faultproxy.Before, faultproxy.After}[rnd.IntN(2)], []faultproxy.How{faultproxy.Close, faultproxy.Reset}[rnd.IntN(2)])
			select {
			case <-time.After(TTL / 2):
			case <-c.ctx.Done():
			}
			p.Disarm()
		}
	})
	t.Cleanup(func() {
		c.end()
		cutting.Wait()
	})
	return p.Addr()
}

// Write writes the events of a source to a file of the folder of -trace.out, if the
// test has one.
func Write(t *testing.T, source string, events []trace.Event) {
	if *out == "" {
		return
	}
	if err := writeTo(filepath.Join(*out, fmt.Sprintf("%s.jsonl", source)), events); err != nil {
		t.Fatal(err)
	}
}

func writeTo(name string, events []trace.Event) error {
	f, err := os.Create(filepath.Clean(name))
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err = trace.Write(w, events); err == nil {
		err = w.Flush()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
