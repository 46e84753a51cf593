package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// cleaner leaves the tickets that no goroutine waits for any more: cancelled
// waits, late grants, lost holds, unlocks without a reply. It repeats a Leave
// until the store has confirmed it, or until the lease has ended there. Each
// lane in use has one goroutine, so that a lane that does not reply delays only
// its own tickets.
type cleaner struct {
	c       *Client
	mu      sync.Mutex
	lanes   map[laneKey][]pendingLeave
	leaving map[*driver.Ticket]chan struct{} // not done yet; nil until somebody waits
	stopped bool                             // no more tickets are accepted
	running sync.WaitGroup
}

// pendingLeave is a ticket to leave.
type pendingLeave struct {
	ref   driver.Ref
	until instant
}

// addHeld leaves a ticket that held.
func (cl *cleaner) addHeld(t *ticket) {
	cl.add(driver.Ref{Ticket: &t.Ticket, State: driver.Held, JoinPending: t.joinPending})
}

func (cl *cleaner) add(ref driver.Ref) {
	id := cl.c.renewer.laneKey(ref.Ticket)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.stopped {
		return
	}
	queue, running := cl.lanes[id]
	until := cl.c.clock.now().add(ref.TTL + ref.TTL/10 + time.Second)
	cl.lanes[id] = append(queue, pendingLeave{ref, until})
	cl.leaving[ref.Ticket] = nil
	if !running {
		cl.running.Add(1)
		go cl.run(id)
	}
}

// awaitLeft returns when the cleaner has nothing more to do about t, but after at most
// releaseTimeout.
func (cl *cleaner) awaitLeft(t *driver.Ticket) {
	cl.mu.Lock()
	done, leaving := cl.leaving[t]
	if leaving && done == nil {
		done = make(chan struct{})
		cl.leaving[t] = done
	}
	cl.mu.Unlock()
	if !leaving {
		return
	}
	limit := time.NewTimer(releaseTimeout(t.TTL))
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	case <-cl.c.requestCtx.Done():
	}
}

// noteLeft notes that the cleaner has nothing more to do about t.
func (cl *cleaner) noteLeft(t *driver.Ticket) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if done := cl.leaving[t]; done != nil {
		close(done)
	}
	delete(cl.leaving, t)
}

// wait accepts no more tickets, and returns when the rest is done.
func (cl *cleaner) wait() {
	cl.mu.Lock()
	cl.stopped = true
	cl.mu.Unlock()
	cl.running.Wait()
}

// run works off one lane. It ends when the lane is empty or requestCtx ends.
func (cl *cleaner) run(id laneKey) {
	defer cl.running.Done()
	for fails := 0; ; {
		cl.mu.Lock()
		queue := cl.lanes[id]
		if len(queue) == 0 || cl.c.requestCtx.Err() != nil {
			delete(cl.lanes, id)
			cl.mu.Unlock()
			return
		}
		n := min(len(queue), batchSize)
		todo := queue[:n:n]
		cl.lanes[id] = queue[n:]
		cl.mu.Unlock()

		again := cl.leave(todo)
		if len(again) == 0 {
			fails = 0
			continue
		}
		cl.mu.Lock()
		cl.lanes[id] = append(cl.lanes[id], again...)
		cl.mu.Unlock()
		select {
		case <-time.After(min(10*time.Millisecond<<min(fails, 7), time.Second)):
		case <-cl.c.requestCtx.Done():
		}
		fails++
	}
}

// leave sends one request and returns the tickets to repeat.
func (cl *cleaner) leave(todo []pendingLeave) (again []pendingLeave) {
	refs := make([]driver.Ref, len(todo))
	ttl := todo[0].ref.TTL
	for i := range todo {
		refs[i] = todo[i].ref
		ttl = min(ttl, refs[i].TTL)
	}
	lh := cl.c.lanes.of(refs[0].Name)
	ctx, cancel := context.WithTimeout(cl.c.requestCtx, lh.requestTimeout(requestLeave, callTimeout(ttl), ttl/3))
	defer cancel()
	statuses, err := lh.leaveBatch(ctx, refs)
	now := cl.c.clock.now()
	var trouble error
	for i, leave := range todo {
		e := err
		if e == nil {
			e = statuses[i].Err
		}
		if e != nil {
			trouble = e
		}
		if e != nil && driver.ClassOf(e) != driver.Refused && now < leave.until {
			again = append(again, leave)
		} else {
			cl.noteLeft(leave.ref.Ticket)
		}
	}
	if trouble != nil && cl.c.requestCtx.Err() == nil {
		cl.c.report.storeError("leave", trouble)
	}
	return again
}
