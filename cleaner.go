package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// cleaner leaves the tickets that nobody waits for any more: cancelled waits,
// grants that came too late, lost holds, unlocks without an answer. It repeats
// itself until the store has confirmed, or until the lease has ended there.
// Each lane in use has one goroutine, so that one that does not answer keeps
// nobody else's tickets.
type cleaner struct {
	c     *Client
	mu    sync.Mutex
	lanes map[uint64][]chore
	over  bool // nothing is taken on any more
	busy  sync.WaitGroup
}

// chore is one ticket to leave.
type chore struct {
	ref   driver.Ref
	until instant
}

// add leaves a ticket that held.
func (cl *cleaner) add(t *ticket) {
	cl.addRef(driver.Ref{Ticket: &t.Ticket, State: driver.Held, Unsure: t.unsure})
}

func (cl *cleaner) addRef(ref driver.Ref) {
	var id uint64
	if f := cl.c.traits.Lane; f != nil {
		id = f(ref.Name)
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.over {
		return
	}
	queue, running := cl.lanes[id]
	until := cl.c.clock.now().add(ref.TTL + ref.TTL/10 + time.Second)
	cl.lanes[id] = append(queue, chore{ref, until})
	if !running {
		cl.busy.Add(1)
		go cl.run(id)
	}
}

// wait takes on nothing more, and returns when the rest is done.
func (cl *cleaner) wait() {
	cl.mu.Lock()
	cl.over = true
	cl.mu.Unlock()
	cl.busy.Wait()
}

// run works off one lane and ends when it is empty, or the client's life does.
func (cl *cleaner) run(id uint64) {
	defer cl.busy.Done()
	for fails := 0; ; {
		cl.mu.Lock()
		queue := cl.lanes[id]
		if len(queue) == 0 || cl.c.life.Err() != nil {
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
		case <-cl.c.life.Done():
		}
		fails++
	}
}

// leave sends one request and returns what has to be repeated.
func (cl *cleaner) leave(todo []chore) (again []chore) {
	refs := make([]driver.Ref, len(todo))
	ttl := todo[0].ref.TTL
	for i := range todo {
		refs[i] = todo[i].ref
		ttl = min(ttl, refs[i].TTL)
	}
	ctx, cancel := context.WithTimeout(cl.c.life, callLimit(ttl))
	defer cancel()
	places, err := cl.c.leaveAll(ctx, refs)
	now := cl.c.clock.now()
	var trouble error
	for i, ch := range todo {
		e := err
		if e == nil {
			e = places[i].Err
		}
		if e == nil {
			continue
		}
		trouble = e
		if driver.ClassOf(e) != driver.Refused && now < ch.until {
			again = append(again, ch)
		}
	}
	if trouble != nil && cl.c.life.Err() == nil {
		cl.c.tellTrouble(storeError("leave", "", trouble))
	}
	return again
}
