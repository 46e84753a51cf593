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
	// A push about a grant comes after its ticket has left, unheard, and others were granted.
	"a late push": func(s *scene) {
		s.join("a")
		comes := s.delayPushes("b")
		s.join("b")
		s.leave("a")
		synctest.Wait() // b holds, and is not told
		s.loseLeave("b")
		s.join("c")
		s.leave("c")
		comes()
		s.join("d")
	},
	// A Join without an answer replaces the ticket that holds, and the next one is told.
	"a lost replacement": func(s *scene) {
		s.join("a")
		s.of("c")
		s.of("d") // then b has the nodes in the order of a, and waits at the same one
		comes := s.delayPushes("b")
		s.join("b")
		s.loseReplace("a")
		comes()
		s.leave("b")
	},
	// Two hold together, and the answer to the first one's Join is lost: its token, told later,
	// is below that of the other.
	"two together": func(s *scene) {
		s.limit = 2
		arrives := s.loseJoin("a")
		arrives()
		s.join("b", "a")
	},
	// A holder's place has ended, and its Join is repeated without an answer: the next one
	// is told that it holds.
	"a repetition after the end": func(s *scene) {
		s.join("a")
		s.delayPushes("b")()
		s.join("b")
		time.Sleep(tracetest.TTL / 2)
		s.renew("b")
		time.Sleep(tracetest.TTL * 3 / 4)
		s.loseJoin("a")()
		s.renew("b")
	},
	// No node carries out a Join that replaces the ticket that holds. That leaves all the same.
	"a failed replacement": func(s *scene) {
		s.join("a")
		s.nodesRefuse = true
		s.failReplace("a")
		s.nodesRefuse = false
		s.join("b")
		s.leave("a")
	},
	// The Leave of the ticket that a Join replaces is carried out, and the Join never is.
	"half a replacement": func(s *scene) {
		s.join("a")
		s.delayPushes("b")()
		s.join("b")
		s.refusesSecond = true
		s.failReplace("a")
		s.refusesSecond = false
		s.join("c")
		s.leave("b")
		s.renew("c")
	},
	// The place of a holder that nobody renews is dropped, and the next one holds.
	"a lapse": func(s *scene) {
		s.join("a", "b")
		time.Sleep(2 * tracetest.TTL)
		s.join("c")
	},
	// The client of b has no connection for pushes, and that of c has one.
	"passed over": func(s *scene) {
		s.join("a", "b")
		s.delayPushes("c")()
		s.join("c")
		s.leave("a")
		s.renew("c")
		s.leave("c")
		s.renew("b")
	},
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
	limit   int64 // of the lock; 0: a mutex

	nodesRefuse   bool // the nodes of RedLock carry out no Join
	refusesSecond bool // a store that replaces by two requests carries out the first one
}

// node is a node of RedLock in a scene.
type node struct {
	driver.Driver
	s *scene
}

func (n *node) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if n.s.nodesRefuse {
		return driver.Status{}, driver.Errorf(driver.Unavailable, "refused by the script")
	}
	return n.Driver.Join(ctx, t, wait)
}

// twoRequests is a way to a store on which a ticket that is replaced leaves by a request of
// its own.
type twoRequests struct {
	driver.Driver
	s *scene
}

func (d *twoRequests) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if t.Replaces != nil {
		if _, err := d.Driver.Leave(ctx, []driver.Ref{{Ticket: t.Replaces, State: driver.Held}}); err != nil {
			return driver.Status{}, err
		}
		if d.s.refusesSecond {
			return driver.Status{}, driver.Errorf(driver.Unknown, "lost by the script")
		}
	}
	return d.Driver.Join(ctx, t, wait)
}

// actor is a client of a scene, the way to its store, and its ticket.
type actor struct {
	*trace.Driver
	*way
	ref driver.Ref
}

// way is the way to a store, which takes a millisecond. On it a Join may be lost and come
// later, the answer to a Leave or to a Join that replaces a ticket may be lost, and pushes
// may come late.
type way struct {
	driver.Driver
	loses  bool
	delays chan struct{} // pushes come once it is closed; nil for at once
}

func (w *way) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	time.Sleep(time.Millisecond)
	if w.loses && t.Replaces == nil {
		return driver.Status{}, driver.Errorf(driver.Unknown, "lost by the script")
	}
	s, err := w.Driver.Join(ctx, t, wait)
	if w.loses {
		return driver.Status{}, driver.Errorf(driver.Unknown, "lost by the script")
	}
	return s, err
}

func (w *way) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	time.Sleep(time.Millisecond)
	return w.Driver.Renew(ctx, refs)
}

func (w *way) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	time.Sleep(time.Millisecond)
	all, err := w.Driver.Leave(ctx, refs)
	if w.loses {
		return nil, driver.Errorf(driver.Unknown, "lost by the script")
	}
	return all, err
}

func (w *way) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return w.Driver.Watch(ctx, func(id string, p driver.Status) {
		if w.delays == nil {
			notify(id, p)
			return
		}
		go func() {
			<-w.delays
			notify(id, p)
		}()
	})
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
	case "apart":
		m := memlock.NewStore()
		s.open = func() driver.Driver { return &twoRequests{memlock.New(m), s} }
	case "passing":
		b := broken.NewStore("last-come") // the last one alone has a connection
		s.open = func() driver.Driver { return broken.New(b) }
	case "flaw":
		b := broken.NewStore(flaw)
		s.open = func() driver.Driver { return broken.New(b) }
	case "redlock-flaw":
		s.nodes = []*broken.Store{broken.NewStore(flaw), broken.NewStore(flaw), broken.NewStore(flaw)}
		s.open = func() driver.Driver {
			var all []driver.Driver
			for i := range s.nodes {
				all = append(all, &node{broken.New(s.nodes[(len(s.clients)+i)%len(s.nodes)]), s})
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
		c = &actor{s.r.Wrap(w), w, driver.Ref{Ticket: &driver.Ticket{ID: name + ":1", Name: "n", Units: 1, Limit: max(s.limit, 1), TTL: tracetest.TTL}}}
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

// loseReplace replaces the ticket of a client by another one, and loses the answer.
func (s *scene) loseReplace(name string) {
	c := s.of(name)
	c.loses = true
	s.failReplace(name)
	c.loses = false
}

// failReplace replaces the ticket of a client by another one, which is answered by an error.
func (s *scene) failReplace(name string) {
	c := s.of(name)
	next := *c.ref.Ticket
	next.ID, next.Replaces = name+":2", c.ref.Ticket
	if _, err := c.Driver.Join(context.Background(), &next, true); err == nil {
		s.t.Fatalf("Join of %s was answered", next.ID)
	}
	next.Replaces = nil
	c.ref = driver.Ref{Ticket: &next, JoinPending: true}
	synctest.Wait()
}

// loseLeave loses the answer to a Leave.
func (s *scene) loseLeave(name string) {
	c := s.of(name)
	c.loses = true
	if _, err := c.Driver.Leave(context.Background(), []driver.Ref{c.ref}); err == nil {
		s.t.Fatalf("Leave of %s was answered", name)
	}
	c.loses = false
}

// delayPushes makes a client watch. Its pushes come when the function that is returned is
// called.
func (s *scene) delayPushes(name string) (come func()) {
	c := s.of(name)
	c.delays = make(chan struct{})
	if err := c.Driver.Watch(context.Background(), func(string, driver.Status) {}); err != nil {
		s.t.Fatalf("Watch of %s: %v", name, err)
	}
	return func() {
		close(c.delays)
		synctest.Wait()
	}
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
			for _, store := range []string{"memory", "cut=memory", "cut=apart", "redlock-flaw=", "cut=redlock-flaw="} {
				redlock := strings.Contains(store, "redlock")
				if (store == "cut=apart") != (script == "half a replacement") {
					continue
				}
				if on, ok := map[string]bool{"a minority": true, "a failed replacement": true, "two together": false}[script]; !ok || on == redlock {
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
