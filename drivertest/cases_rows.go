package drivertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// idleNames is the number of names that the case leaves idle.
const idleNames = 200

// leaveIdle has a client use names once, long ago. Other cases may have stepped
// the store's clock forward and back, so that tokens are ahead of it. Until the
// clock has caught up, a store may count these queues as used just now.
func (w *world) leaveIdle(c *client) {
	var last uint64
	for i := range idleNames {
		t := c.mutex(fmt.Sprint("idle-", i))
		last = max(last, c.join(t, driver.Held).Token)
		c.leave(t, driver.Held)
	}
	step := 10 * time.Minute
	if ahead := last - driver.NextToken(0, 0, time.Now()); w.traits.Fencing && int64(ahead) > 0 {
		step += time.Duration(ahead) * driver.TokenTick
	}
	w.h.StepClock(w.T, step)
	w.Cleanup(func() { w.h.StepClock(w.T, -step) })
}

// turns has a client take and give back other names, and returns how long that takes,
// or how long it took until limit was over.
func (w *world) turns(c *client, limit time.Duration) (took time.Duration) {
	w.Helper()
	const rounds = 64 // enough for several sweeps
	start := time.Now()
	for i := 0; i < rounds && took <= limit; i++ {
		t := c.mutex(fmt.Sprint("other-", i%8))
		c.join(t, driver.Held)
		c.leave(t, driver.Held)
		took = time.Since(start)
	}
	return took
}

// wantInVain has a client ask for a name whose row a stranger keeps, until the
// returned function is called. Its requests are short, so that it never stops asking;
// an answer, of a store on which the row keeps nobody out, is followed by a pause.
func wantInVain(c *client, t *driver.Ticket) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wants sync.WaitGroup
	wants.Go(func() {
		for ctx.Err() == nil {
			once, end := context.WithTimeout(ctx, 2*time.Second)
			_, _ = c.d.Join(once, t, true)
			end()
			time.Sleep(time.Millisecond)
		}
	})
	return func() {
		cancel()
		wants.Wait()
	}
}

var rowCases = []Case{
	{Name: "locked-row", Rules: "Driver 1, Renew 1, F122", Needs: LockRow | StepClock, Alone: true, run: func(w *world) {
		// A stranger keeps the row of one line. Somebody wants that lock; all
		// others get theirs as fast as before, and keep them, also those that
		// are renewed in one request with it.
		a, b, c := w.client(), w.client(), w.client()
		w.leaveIdle(a)
		refs := make([]driver.Ref, 20)
		for i := range refs {
			refs[i] = driver.Ref{Ticket: a.mutex(fmt.Sprint("held-", i)), State: driver.Held}
			a.join(refs[i].Ticket, driver.Held)
		}
		before := w.turns(c, w.maxWait())
		release := w.h.LockRow(w.T, refs[0].Name)
		defer release()
		stop := wantInVain(b, b.mutex("held-0"))
		defer stop()
		limit := 10*before + 3*time.Second
		begun := time.Now()
		if took := w.turns(c, limit); w.still.exceed(took, limit, begun) {
			w.Errorf("while one row is locked, turns at other names take %v and more, %v before", took, before)
		}
		renew, end := context.WithTimeout(context.Background(), 10*time.Second)
		places, err := a.d.Renew(renew, refs)
		end()
		if err != nil {
			w.Fatalf("Renew: %v", err)
		}
		for i, p := range places[1:] {
			if p.State != driver.Held || p.Err != nil {
				w.Errorf("%s, whose row is not locked: %+v", refs[1+i].ID, p)
			}
		}
		stop()
		release()
		a.renew(refs[0].Ticket, driver.Held)
	}},
	{Name: "slow-beside-locked-row", Rules: "Watch 2, F115, F122", Needs: LockRow | Push, Alone: true, run: func(w *world) {
		// A stranger keeps the row of one line, so that requests about it end with
		// their contexts. The store is slow there, and not silent: it answers the
		// same client about another line, so that its pushes have no gap.
		a, b := w.client(), w.client()
		held, waits, locked := a.mutex("n"), b.mutex("n"), b.mutex("locked")
		a.join(held, driver.Held)
		b.join(waits, driver.Waiting)
		b.join(locked, driver.Held)
		release := w.h.LockRow(w.T, locked.Name)
		defer release()
		w.settle()
		const rounds = 6
		var lock sync.Mutex
		gaps, answered := b.gapCount(), 0
		for range rounds {
			ctx, end := context.WithTimeout(context.Background(), 500*time.Millisecond)
			var others sync.WaitGroup
			others.Go(func() {
				for ctx.Err() == nil {
					// Its own context, which does not end with the other.
					once, end := w.limit()
					p, err := b.d.Renew(once, []driver.Ref{{Ticket: waits, State: driver.Waiting}})
					end()
					if err == nil && p[0].State == driver.Waiting {
						lock.Lock()
						answered++
						lock.Unlock()
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
			_, _ = b.d.Renew(ctx, []driver.Ref{{Ticket: locked, State: driver.Held}})
			others.Wait()
			end()
			w.settle()
		}
		gaps = b.gapCount() - gaps
		// A machine that stands still may make one of them a silence.
		if answered >= rounds && gaps > rounds/2 {
			w.Errorf("beside %d requests that ended with their contexts and %d that were answered, the pushes had %d gaps", rounds, answered, gaps)
		}
		a.leave(held, driver.Held)
		b.awaitPush(waits, driver.Held)
	}},
	{Name: "idle-rows", Rules: "F130", Needs: Rows | StepClock, Alone: true, run: func(w *world) {
		// Names that were used once leave nothing, although nobody joins any
		// more.
		c := w.client()
		before := w.h.Rows(w.T)
		w.leaveIdle(c)
		w.until("nothing is kept for names that nobody uses", func() bool { return w.h.Rows(w.T) <= before+idleNames/10 })
	}}, {Name: "idle-rows-beside-locked", Rules: "F122, F130", Needs: Rows | LockRow | StepClock, Alone: true, run: func(w *world) {
		// A stranger keeps the row of one idle name, which somebody wants. The rows
		// of other idle names go as if nobody did, and while they go, others get
		// their locks as fast as before.
		a, b, c := w.client(), w.client(), w.client()
		before := w.h.Rows(w.T)
		locked := a.mutex("locked")
		a.join(locked, driver.Held)
		a.leave(locked, driver.Held)
		quick := w.turns(c, w.maxWait())
		release := w.h.LockRow(w.T, locked.Name)
		defer release()
		stop := wantInVain(b, b.mutex("locked"))
		defer stop()
		w.leaveIdle(a)
		limit := 10*quick + 3*time.Second
		begun := time.Now()
		if took := w.turns(c, limit); w.still.exceed(took, limit, begun) {
			w.Errorf("while somebody wants an idle name whose row is locked, turns at other names take %v and more, %v before", took, quick)
		}
		w.until("nothing is kept for idle names beside a locked row", func() bool { return w.h.Rows(w.T) <= before+1+idleNames/10 })
	}},
}
