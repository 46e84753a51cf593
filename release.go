package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// leaveCall allocates together what the first Leave needs; mostly no second
// Leave follows.
type leaveCall struct {
	call callCtx
	refs [1]driver.Ref
}

// leaveStore releases at the store a ticket that retireHeld has taken out of
// the queue, and reports whether the store had lost it before. It blocks for at
// most releaseTimeout. If the outcome is still unknown then, the cleaner
// continues in the background.
func (q *queue) leaveStore(t *ticket) (gone bool, err error) {
	limit := releaseTimeout(q.key.ttl)
	start := time.Now()
	first := leaveCall{refs: [1]driver.Ref{{Ticket: &t.Ticket, State: driver.Held, JoinPending: t.joinPending}}}
	call, refs := &first.call, first.refs[:]
	call.begin(q.c.requestCtx, limit/2) // leaves time for a second try
	perhaps := false                    // an earlier try may have released the ticket
	for try := 0; ; try++ {
		p, err := q.leaveOnce(call, refs)
		call.end()
		perhaps = perhaps || err != nil && driver.ClassOf(err) == driver.Unknown
		switch {
		case err == nil && p == driver.Gone && !perhaps:
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

func (q *queue) leaveOnce(ctx context.Context, refs []driver.Ref) (driver.State, error) {
	statuses, err := q.laneHealth.leaveBatch(ctx, refs)
	if err != nil {
		return 0, err
	}
	return statuses[0].State, statuses[0].Err
}

// loseHeld ends a held ticket that the store has dropped or may drop. The
// contexts of its holds end before the queue moves on.
func (q *queue) loseHeld(t *ticket, why LossReason) {
	q.mu.Lock()
	if t.state != driver.Held {
		q.mu.Unlock()
		return
	}
	q.retireHeld(t)
	users := t.holds.empty()
	ref := driver.Ref{Ticket: &t.Ticket, State: driver.Held, JoinPending: t.joinPending}
	ended := make([]*Hold, 0, len(users))
	lost := make([]endedHold, 0, len(users))
	for _, h := range users {
		if !h.taken { // granted, but not yet seen by its goroutine
			h.wakeUp()
			continue
		}
		// The first caller to end a hold reports it and releases the queue.
		err := h.lostError(why)
		last, reported := h.end(err)
		if last {
			ended = append(ended, h)
		}
		if last && !reported {
			lost = append(lost, endedHold{h, q.c.clock.now(), err})
		}
	}
	q.mu.Unlock()
	if why != LossGone || ref.JoinPending {
		q.c.cleaner.add(ref)
	}
	for _, h := range ended {
		q.c.shutdown.holdEnded(h) // before the report: HoldDone may call Shutdown, which must not count h
	}
	q.c.report.ended(lost...)
	q.mu.Lock()
	q.ensureJoiner()
	q.mu.Unlock()
}
