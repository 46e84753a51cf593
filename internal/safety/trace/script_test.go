package trace_test

import (
	"context"
	"flag"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/internal/safety/trace/tracetest"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/redlock"
)

var scripted = flag.String("trace.scripts", "", "what TestRecordScripts records, separated by commas: STORE@SCRIPT, with a store of a torture in memory. Without any it is each script on sound stores")

// scripts have a few requests each, in an order in which a store, or a driver, with the
// mistake of that name shows it, whatever is left open about times and outcomes.
var scripts = map[string]func(*scene){
	"two-holders": func(s *scene) {
		s.join("a", "b")
	},
	"last-come": func(s *scene) {
		s.join("a", "b", "c")
		s.leave("a")
		s.renew("b", "c")
	},
	"leave-is-release": func(s *scene) {
		s.join("a", "b", "c")
		s.leave("b")
		s.renew("c", "a")
	},
	"unsure-leaks": comesLate,
	"idle-restarts": func(s *scene) {
		s.join("a")
		s.leave("a")
		s.join("b")
	},
	// Two of three nodes keep the holder. The third one is the home of one of the others.
	"a minority": func(s *scene) {
		s.join("a")
		synctest.Wait() // it has the votes of all nodes
		s.nodes[0].LoseData()
		s.join("b", "c", "d")
	},
	"left enters": comesLate,
}

// comesLate lets a Join arrive after its ticket has left, and again, when it is answered.
func comesLate(s *scene) {
	arrives := s.loseJoin("a")
	s.leave("a")
	arrives()
	s.join("b", "a")
}

// scene is a store of scripts, with a client for each ticket.
type scene struct {
	t       *testing.T
	r       *trace.Recorder
	open    func() driver.Driver
	nodes   []*broken.Store // of RedLock
	clients map[string]*actor
}

// actor is a client of a scene, the way to its store, and its ticket.
type actor struct {
	*trace.Driver
	*way
	ref driver.Ref
}

// way is the way to a store, which takes a millisecond, and on which a Join may be lost and
// come later.
type way struct {
	driver.Driver
	loses bool
}

func (w *way) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	time.Sleep(time.Millisecond)
	if w.loses {
		return driver.Status{}, driver.Errorf(driver.Unknown, "lost by the script")
	}
	return w.Driver.Join(ctx, t, wait)
}

func (w *way) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	time.Sleep(time.Millisecond)
	return w.Driver.Renew(ctx, refs)
}

func (w *way) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	time.Sleep(time.Millisecond)
	return w.Driver.Leave(ctx, refs)
}

// newScene returns a scene of a store in memory that a torture has, too.
func newScene(t *testing.T, store string) *scene {
	s := &scene{t: t, r: trace.NewServerRecorder(1), clients: map[string]*actor{}}
	rest, cut := strings.CutPrefix(store, "cut=")
	if cut {
		s.r = trace.NewCutRecorder(1)
	}
	switch kind, flaw, _ := strings.Cut(rest, "="); kind {
	case "memory":
		m := memlock.NewStore()
		s.open = func() driver.Driver { return memlock.New(m) }
	case "flaw":
		b := broken.NewStore(flaw)
		s.open = func() driver.Driver { return broken.New(b) }
	case "redlock-flaw":
		s.nodes = []*broken.Store{broken.NewStore(flaw), broken.NewStore(flaw), broken.NewStore(flaw)}
		s.open = func() driver.Driver {
			var all []driver.Driver
			for i := range s.nodes {
				all = append(all, broken.New(s.nodes[(len(s.clients)+i)%len(s.nodes)]))
			}
			d, err := redlock.New(all, nil)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	default:
		t.Fatalf("there is no store %q for scripts", store)
	}
	return s
}

// of returns the client of a name.
func (s *scene) of(name string) *actor {
	c := s.clients[name]
	if c == nil {
		w := &way{Driver: s.open()}
		c = &actor{s.r.Wrap(w), w, driver.Ref{Ticket: &driver.Ticket{ID: name + ":1", Name: "n", Units: 1, Limit: 1, TTL: tracetest.TTL}}}
		s.clients[name] = c
	}
	return c
}

func (s *scene) join(names ...string) {
	for _, name := range names {
		c := s.of(name)
		if _, err := c.Driver.Join(context.Background(), c.ref.Ticket, true); err != nil {
			s.t.Fatalf("Join of %s: %v", name, err)
		}
	}
}

// loseJoin loses a Join. It arrives when the function that is returned is called.
func (s *scene) loseJoin(name string) (arrives func()) {
	c := s.of(name)
	c.loses, c.ref.JoinPending = true, true
	if _, err := c.Driver.Join(context.Background(), c.ref.Ticket, true); err == nil {
		s.t.Fatalf("Join of %s was answered", name)
	}
	c.loses = false
	return func() { _, _ = c.way.Join(context.Background(), c.ref.Ticket, true) }
}

func (s *scene) leave(name string) {
	c := s.of(name)
	if all, err := c.Driver.Leave(context.Background(), []driver.Ref{c.ref}); err != nil || all[0].Err != nil {
		s.t.Fatalf("Leave of %s: %v, %v", name, all, err)
	}
}

func (s *scene) renew(names ...string) {
	for _, name := range names {
		c := s.of(name)
		if all, err := c.Driver.Renew(context.Background(), []driver.Ref{c.ref}); err != nil || all[0].Err != nil {
			s.t.Fatalf("Renew of %s: %v, %v", name, all, err)
		}
	}
}

// TestRecordScripts writes the requests of scripts, which internal/proof holds against
// the specification.
func TestRecordScripts(t *testing.T) {
	names := *scripted
	if names == "" {
		var all []string
		for script := range scripts {
			for _, store := range []string{"memory", "cut=memory", "redlock-flaw=", "cut=redlock-flaw="} {
				if script != "a minority" || strings.Contains(store, "redlock") {
					all = append(all, store+"@"+script)
				}
			}
		}
		names = strings.Join(all, ",")
	}
	for name := range strings.SplitSeq(names, ",") {
		store, script, _ := strings.Cut(name, "@")
		play := scripts[script]
		if play == nil {
			t.Fatalf("there is no script %q", script)
		}
		var events []trace.Event
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, store)
			play(s)
			for _, c := range s.clients {
				if err := c.Driver.Close(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			events = s.r.Events()
		})
		tracetest.Write(t, name, events)
	}
}
