package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A ticket that holds ends at the store by leave, after an Unlock, or by lose, when
// the store has dropped it or may drop it.

// leaveCall allocates together what the first Leave needs; mostly no second
// Leave follows.
type leaveCall struct {
	call callCtx
	refs [1]driver.Ref
}

// leave releases at the store a ticket that held and is out of the queue, and
// reports whether the store had lost it before. It blocks for at
// most releaseTimeout. If the outcome is still unknown then, the cleaner
// continues in the background.
func (t *ticket) leave() (gone bool, err error) {
	q := t.queue
	limit := releaseTimeout(q.key.ttl)
	start := time.Now()
	first := leaveCall{refs: [1]driver.Ref{{Ticket: &t.Ticket, State: driver.Held, JoinPending: t.joinPending}}}
	call, refs := &first.call, first.refs[:]
	call.begin(q.c.requestCtx, limit/2) // leaves time for a second try
	perhaps := false                    // an earlier try may have released the ticket
	for try := 0; ; try++ {
		statuses, err := q.laneHealth.leaveBatch(call, refs)
		call.end()
		if err == nil {
			err = statuses[0].Err
		}
		perhaps = perhaps || err != nil && driver.ClassOf(err) == driver.Unknown
		switch {
		case err == nil && statuses[0].State == driver.Gone && !perhaps:
			return true, nil
		case err == nil:
			// Held; or Gone at a later try: then an earlier try released the
			// ticket, because the claim was valid when that try was sent.
			return false, nil
		case driver.ClassOf(err) == driver.Refused:
			return false, storeError("release", q.name(), err)
		}
		left := limit - time.Since(start)
		pause := min(time.Millisecond<<min(try, 6), limit/10)
		if left > pause {
			select {
			case <-time.After(pause):
				call = new(callCtx)
				call.begin(q.c.requestCtx, left-pause)
				continue
			case <-q.c.requestCtx.Done():
			}
		}
		q.c.cleaner.add(refs[0])
		return false, storeError("release", q.name(), err)
	}
}

// lose ends a held ticket that the store has dropped or may drop. The
// contexts of its holds end before the queue moves on.
func (t *ticket) lose(why LossReason) {
	q := t.queue
	q.mu.Lock()
	if t.state != driver.Held {
		q.mu.Unlock()
		return
	}
	ref := t.ref()
	q.endTicket(t, kept) // it leaves when its holds have ended
	users := t.holds.empty()
	ended := make([]*rootHold, 0, len(users))
	lost := make([]endedHold, 0, len(users))
	for _, h := range users {
		if !h.taken { // granted, but not yet seen by its goroutine
			h.wait.wake()
			continue
		}
		// The first caller to end a hold reports it and releases the queue.
		err := h.lostError(why)
		last, reported := h.root.end(err)
		if last {
			ended = append(ended, h.root)
		}
		if last && !reported {
			lost = append(lost, endedHold{h.root, q.c.clock.now(), err})
		}
	}
	q.mu.Unlock()
	if why != LossGone || ref.JoinPending {
		q.c.cleaner.add(ref)
	}
	for _, r := range ended {
		q.c.shutdown.holdEnded(r) // before the report: HoldDone may call Shutdown, which must not count r
	}
	q.c.report.ended(lost...)
	q.mu.Lock()
	q.ensureJoiner()
	q.mu.Unlock()
}
