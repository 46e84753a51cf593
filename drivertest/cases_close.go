package drivertest

import (
	"context"
	"runtime"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
)

// closeLimit is the time in which a driver closes while its store does not answer.
const closeLimit = 500 * time.Millisecond

// giveUp sends a request of every kind at the same time to a store that does not
// answer, and returns when all have ended with their contexts.
func giveUp(c *client, t, held, waits *driver.Ticket) {
	const patience = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var calls sync.WaitGroup
	for _, request := range []struct {
		name string
		of   *driver.Ticket
	}{
		{"Join", t}, {"TryJoin", c.mutex("another")}, {"Renew", held}, {"Renew", waits}, {"Leave", waits},
		{"Inspect", held}, {"Names", held}, {"Break", waits},
	} {
		calls.Go(func() { _ = c.requestsOf(ctx, request.of)[request.name]() })
	}
	calls.Wait()
}

var closeCases = []Case{
	{Name: "close-silent", Rules: "Close 1, 4, F136", Needs: Pause, Alone: true, run: func(w *world) {
		// The store is silent: Close ends soon, and no goroutine survives it, after
		// requests that have given up and with a subscription that flows.
		before := goleak.IgnoreCurrent()
		a := w.client()
		held, waits := a.mutex("n"), a.mutex("n")
		a.join(held, driver.Held)
		a.join(waits, driver.Waiting)
		t := a.mutex("free")
		resume := sync.OnceFunc(w.h.Pause(w.T))
		defer resume() // other cases go on, whatever becomes of this one
		for range 2 {
			giveUp(a, t, held, waits)
		}
		start := time.Now()
		a.close()
		if took := time.Since(start); w.still.exceed(took, closeLimit+w.h.Slack, start) {
			w.Errorf("Close took %v while the store was silent, at most %v is allowed", took, closeLimit)
		}
		var err error
		for start = time.Now(); ; {
			if err = goleak.Find(before); err == nil {
				break
			}
			if w.h.bubble || w.still.exceed(time.Since(start), w.h.Slack, start) {
				w.Errorf("after Close: %.2000v", err)
				break
			}
		}
		resume()
	}},
	{Name: "silence-costs-nothing", Rules: "Driver 3, F7, F105", Needs: Pause, Alone: true, run: func(w *world) {
		// The store is silent for long: requests that have given up leave no goroutines
		// behind that grow in number with them.
		const rounds, allowed = 30, 60
		a := w.client()
		held, waits := a.mutex("n"), a.mutex("n")
		a.join(held, driver.Held)
		a.join(waits, driver.Waiting)
		t := a.mutex("free")
		resume := sync.OnceFunc(w.h.Pause(w.T))
		defer resume()
		before := runtime.NumGoroutine()
		for range rounds {
			giveUp(a, t, held, waits)
		}
		w.settle()
		if more := runtime.NumGoroutine() - before; more > allowed {
			w.Errorf("%d rounds of requests that have given up leave %d goroutines, at most %d are allowed", rounds, more, allowed)
		} else {
			w.Logf("%d goroutines more", more)
		}
		resume()
	}},
}
