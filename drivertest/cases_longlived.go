package drivertest

import (
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// agedNames is the number of names that the clients of the case use in turn.
const agedNames = 25

// agedPair is two clients that use names for a long time.
type agedPair struct {
	w    *world
	a, b *client
	last map[string]uint64 // tokens
	n    int
}

// turn has both clients use the next name: one holds it; the other one tries
// without success, waits, and is granted after a release or a Break.
func (g *agedPair) turn() {
	g.w.Helper()
	name := fmt.Sprint("aged-", g.n%agedNames)
	t, u, v := g.a.mutex(name), g.b.mutex(name), g.b.mutex(name)
	first := g.a.join(t, driver.Held)
	g.b.try(v, driver.Gone)
	g.b.join(u, driver.Waiting)
	if g.n%3 == 0 {
		g.a.breakTicket(t)
	} else {
		g.a.leave(t, driver.Held)
	}
	var second driver.Status
	if g.w.traits.Push && g.w.traits.Fair {
		g.b.awaitPush(u, driver.Held)
		second = g.b.renewAny(u)
	} else {
		second = g.b.awaitGrant(u, driver.Status{State: driver.Waiting})
	}
	if g.w.traits.Fencing && (first.Token <= g.last[name] || second.Token <= first.Token) {
		g.w.Errorf("turn %d: tokens %d, %d and %d", g.n, g.last[name], first.Token, second.Token)
	}
	g.last[name] = second.Token
	g.b.leave(u, driver.Held)
	for _, t := range []*driver.Ticket{t, u, v} {
		g.a.forget(t)
		g.b.forget(t)
	}
	g.n++
}

// resources counts the goroutines and connections of an idle process.
func (g *agedPair) resources() (goroutines, connections int) {
	g.w.settle()
	if g.w.h.Connections != nil {
		connections = g.w.h.Connections(g.w.T)
	}
	return runtime.NumGoroutine(), connections
}

var agedCases = []Case{
	{Name: "aged", Rules: "Driver 3, Watch 1, F118", Alone: true, run: func(w *world) {
		// Clients that have taken, waited for, lost and left many tickets work as
		// a new client does, and keep no more resources.
		g := &agedPair{w: w, a: w.client(), b: w.client(), last: make(map[string]uint64)}
		turns := w.h.Waiters / 10
		if w.h.bubble {
			turns = 5 * w.h.Waiters
		}
		for range agedNames {
			g.turn()
		}
		goroutines, connections := g.resources()
		for range turns {
			if g.turn(); w.Failed() {
				return
			}
		}
		more, conns := g.resources()
		// Goroutines and connections may end a moment after their clients.
		for end := time.Now().Add(10 * time.Second); !w.h.bubble && time.Now().Before(end) &&
			(more > goroutines+goroutines/10+5 || conns > connections+connections/10+2); {
			more, conns = g.resources()
		}
		if most := goroutines + goroutines/10 + 5; more > most {
			w.Errorf("%d goroutines after %d turns, %d before", more, turns, goroutines)
		}
		if most := connections + connections/10 + 2; conns > most {
			w.Errorf("%d connections after %d turns, %d before", conns, turns, connections)
		}
		w.checkNames(g.a, w.tag)
		for i := range agedNames {
			w.checkEmpty(fmt.Sprint("aged-", i))
		}
	}},
}
