package drivertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"go.uber.org/goleak"
)

// requestsOf returns a call of every method that sends requests.
func (c *client) requestsOf(ctx context.Context, t *driver.Ticket) map[string]func() error {
	refs := []driver.Ref{{Ticket: t, State: driver.Held}}
	return map[string]func() error{
		"Join":    func() error { _, err := c.d.Join(ctx, t, true); return err },
		"TryJoin": func() error { _, err := c.d.Join(ctx, t, false); return err },
		"Renew":   func() error { return firstError(c.d.Renew(ctx, refs)) },
		"Leave":   func() error { return firstError(c.d.Leave(ctx, refs)) },
		"Inspect": func() error { _, err := c.d.Inspect(ctx, t.Name); return err },
		"Names": func() error {
			for name, err := range c.d.Names(ctx, t.Name) {
				if err != nil {
					if name != "" {
						return fmt.Errorf("an error comes with the name %q", name)
					}
					return err
				}
			}
			return nil
		},
		"Break": func() error { return c.d.Break(ctx, t.Name, t.ID) },
		"Watch": func() error { return c.d.Watch(ctx, c.notify) },
	}
}

// firstError returns the error of a batch, or of the first ticket in it.
func firstError(ps []driver.Status, err error) error {
	if err != nil || len(ps) == 0 {
		return err
	}
	return ps[0].Err
}

var errCause = errors.New("the cause of the case")

var lifeCases = []Case{
	{Name: "traits", Rules: "Traits 1, 2", run: func(w *world) {
		// Data that make sense and do not change.
		c := w.client()
		tr := c.d.Traits()
		if tr.Scheme == "" || tr.MinTTL <= 0 || tr.MaxTTL < tr.MinTTL || tr.Granularity < 0 || tr.Owner && !tr.Fencing {
			w.Errorf("Traits are %+v", tr)
		}
		if _, marks := c.d.(driver.Marker); tr.Marks && (!marks || !tr.Fencing) {
			w.Errorf("Traits say Marks: a Marker %v, Fencing %v", marks, tr.Fencing)
		}
		if w.h.TTL < tr.MinTTL || w.h.TTL > tr.MaxTTL {
			w.Errorf("the harness's TTL of %v is not within %v and %v", w.h.TTL, tr.MinTTL, tr.MaxTTL)
		}
		lane := func(d driver.Driver) []uint64 {
			var ls []uint64
			for i := range 100 {
				if f := d.Traits().Lane; f != nil {
					ls = append(ls, f(fmt.Sprint("n", i)))
				}
			}
			return ls
		}
		lanes := lane(c.d)
		t := c.mutex("n")
		c.join(t, driver.Held)
		c.leave(t, driver.Held)
		for _, d := range []driver.Driver{c.d, w.client().d} {
			again := d.Traits()
			if got := lane(d); !reflect.DeepEqual(got, lanes) {
				w.Errorf("names have changed their lanes")
			}
			again.Lane, tr.Lane = nil, nil
			if !reflect.DeepEqual(again, tr) {
				w.Errorf("Traits were %+v and are %+v", tr, again)
			}
		}
	}},
	{Name: "identity", Rules: "Identifier", run: func(w *world) {
		// Clients of one store say so.
		var first string
		for i := range 3 {
			id, ok := w.client().d.(driver.Identifier)
			if !ok {
				return
			}
			ctx, cancel := w.limit()
			s, err := id.Identity(ctx)
			cancel()
			if err != nil || s == "" {
				w.Errorf("Identity: %q, %v", s, err)
			}
			if i == 0 {
				first = s
			} else if s != first {
				w.Errorf("two clients of one store are %q and %q", first, s)
			}
		}
	}},
	{Name: "check", Rules: "Checker", run: func(w *world) {
		// The examination finds something out, and leaves nothing behind.
		c := w.client()
		ch, ok := c.d.(driver.Checker)
		if !ok {
			return
		}
		before := c.listNames("")
		ctx, cancel := w.limit()
		defer cancel()
		found, err := ch.Check(ctx)
		if err != nil {
			w.Fatalf("Check: %v", err)
		}
		for _, f := range found {
			if f.Topic == "" || f.Detail == "" || (f.Level == driver.OK) != (f.Advice == "") {
				w.Errorf("finding %+v", f)
			}
		}
		if after := c.listNames(""); !reflect.DeepEqual(before, after) {
			w.Errorf("lines were %q and are %q", before, after)
		}
	}, Alone: true},
	{Name: "ended-context", Rules: "Driver 2, 5, F6", run: func(w *world) {
		// A call whose context has ended comes back at once, says why, and has
		// done nothing.
		a := w.client()
		t, held := a.mutex("n"), a.mutex("held")
		a.join(held, driver.Held)
		fresh := w.clientWithoutWatch()
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errCause)
		for _, tk := range []*driver.Ticket{t, held} {
			for name, call := range fresh.requestsOf(ctx, tk) {
				w.checkPrompt(name, func() {
					err := call()
					if !errors.Is(err, errCause) {
						w.Errorf("%s: error is %v, want the context's cause", name, err)
					}
					if cl := driver.ClassOf(err); cl != driver.NotDone && cl != driver.Unknown {
						w.Errorf("%s: the class of %v is %v", name, err, cl)
					}
				})
			}
		}
		w.checkEmpty(t.Name)
		w.checkQueue(held.Name, []*driver.Ticket{held})
	}},
	{Name: "silent-store", Rules: "Driver 2, 5, F7, F21", Needs: Pause, Alone: true, run: func(w *world) {
		// While the store is silent, calls end with their contexts, and say
		// that they do not know. Afterwards everything can be settled.
		a := w.client()
		t, held := a.mutex("n"), a.mutex("held")
		a.join(held, driver.Held)
		resume := w.h.Pause(w.T)
		resumed := false
		defer func() {
			if !resumed {
				resume()
			}
		}()
		const patience = 100 * time.Millisecond
		for name, call := range map[string]func(ctx context.Context) error{
			"Join":    func(ctx context.Context) error { return a.requestsOf(ctx, t)["Join"]() },
			"Renew":   func(ctx context.Context) error { return a.requestsOf(ctx, held)["Renew"]() },
			"Inspect": func(ctx context.Context) error { return a.requestsOf(ctx, held)["Inspect"]() },
			"Names":   func(ctx context.Context) error { return a.requestsOf(ctx, held)["Names"]() },
		} {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			start := time.Now()
			err := call(ctx)
			cancel()
			if took, most := time.Since(start), patience+50*time.Millisecond+w.h.Slack; w.still.exceed(took, most, start) {
				w.Errorf("%s took %v with a context of %v", name, took, patience)
			}
			if err == nil {
				w.Errorf("%s of a silent store says nothing of it", name)
			} else if cl := driver.ClassOf(err); cl != driver.Unknown && cl != driver.Unavailable {
				w.Errorf("%s: the class of %q is %v, want %v", name, err, cl, driver.Unknown)
			}
		}
		resume()
		resumed = true
		ctx, cancel := w.limit()
		defer cancel()
		for a.leaveQuietly(ctx, t) != nil && ctx.Err() == nil {
			time.Sleep(w.pollInterval())
		}
		w.settle()
		w.checkEmpty(t.Name)
		a.renew(held, driver.Held)
	}},
	{Name: "close", Rules: "Close 2, 3", run: func(w *world) {
		// A closed driver says so, and has given nothing up.
		a, b := w.client(), w.client()
		t := a.mutex("n")
		a.join(t, driver.Held)
		a.close()
		if err := a.d.Close(); err != nil {
			w.Errorf("second Close: %v", err)
		}
		for name, call := range a.requestsOf(context.Background(), a.mutex("n")) {
			if err := call(); !errors.Is(err, driver.ErrClosed) {
				w.Errorf("%s: error is %v, want %q", name, err, driver.ErrClosed)
			}
		}
		w.checkQueue(t.Name, []*driver.Ticket{t})
		b.try(b.mutex("n"), driver.Gone)
	}},
	{Name: "close-leaves-nothing", Rules: "Close 1", Alone: true, run: func(w *world) {
		// No goroutine survives Close, after work of every kind.
		work := func() {
			a := w.client()
			t, next := a.mutex("n"), a.mutex("n")
			a.join(t, driver.Held)
			a.join(next, driver.Waiting)
			a.renew(next, driver.Waiting)
			a.listNames(t.Name)
			a.leave(t, driver.Held)
			if w.traits.Push {
				a.awaitPush(next, driver.Held)
			}
			a.leave(next, driver.Held)
			a.close()
		}
		w.witness()
		work()
		// The witness may make a connection anew meanwhile, which is no leak and
		// comes but once.
		var err error
		for range 3 {
			before := goleak.IgnoreCurrent()
			for range 3 {
				work()
			}
			for end := time.Now().Add(10 * time.Second); ; {
				if err = goleak.Find(before); err == nil {
					return
				}
				if w.h.bubble || time.Now().After(end) {
					break
				}
			}
		}
		w.Errorf("after Close: %.2000v", err)
	}},
	{Name: "waiting-costs-nothing", Rules: "Driver 3, F51, F64", Alone: true, run: func(w *world) {
		// A thousand tickets of one client wait, in one line and in many, with
		// no goroutine and no connection for each.
		a := w.client()
		first := a.mutex("n")
		a.join(first, driver.Held)
		a.join(a.mutex("n"), driver.Waiting)
		w.settle()
		count := func() (goroutines, connections int) {
			if w.h.Connections != nil {
				connections = w.h.Connections(w.T)
			}
			return runtime.NumGoroutine(), connections
		}
		g, conns := count()
		for i := range w.h.Waiters {
			name := "n"
			if i%10 == 0 {
				name = fmt.Sprint("n", i)
				t := a.mutex(name)
				a.join(t, driver.Held)
			}
			t := a.mutex(name)
			a.join(t, driver.Waiting)
		}
		w.settle()
		gs, cs := count()
		if more := w.h.Waiters / 20; gs > g+more {
			w.Errorf("%d tickets wait with %d more goroutines", w.h.Waiters, gs-g)
		} else if cs > conns+more {
			w.Errorf("%d tickets wait with %d more connections", w.h.Waiters, cs-conns)
		}
		// They leave in batches.
		var refs []driver.Ref
		for _, t := range a.all() {
			refs = append(refs, driver.Ref{Ticket: t, State: driver.Waiting})
		}
		for len(refs) > 0 {
			batch := w.sameLane(append([]driver.Ref(nil), refs[:min(200, len(refs))]...))
			a.leaveAll(batch)
			gone := make(map[string]bool, len(batch))
			for _, r := range batch {
				gone[r.ID] = true
				a.forget(r.Ticket)
			}
			rest := refs[:0]
			for _, r := range refs {
				if !gone[r.ID] {
					rest = append(rest, r)
				}
			}
			refs = rest
		}
		w.checkNames(a, w.tag)
	}},
}
