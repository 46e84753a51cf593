package holdfast

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ticket is one try to hold a line, as the core follows it. Its state only
// moves Waiting, Held, Gone.
type ticket struct {
	driver.Ticket
	line *line

	// Guarded by line.mu.
	state   driver.State // 0 until the first answer
	unsure  bool         // some Join went unanswered; stays so
	passes  uint16       // local hand-overs so far, the low part of the token
	tries   int32        // Joins sent
	asked   instant      // when the first Join was sent
	granted instant      // when the grant was learnt
	token   uint64       // the store's part
	users   holdList     // who holds by it; several only for readers
	heard   *heard       // nil when nothing was

	// claim is when the ticket's own claim ends, an instant. Written under
	// line.mu, read anywhere.
	claim atomic.Int64

	keep keeping // guarded by keeper.mu
}

// heard is what the store said of a ticket beside its state.
type heard struct {
	push   driver.Place // what a push said before Join answered
	holder string       // metadata of who is in the way
}

// hear notes who is in the way.
func (t *ticket) hear(holder string) {
	if t.heard == nil {
		if holder == "" {
			return
		}
		t.heard = new(heard)
	}
	t.heard.holder = holder
}

// tokenNow is the token of who holds by t now, unless several may.
func (t *ticket) tokenNow() uint64 { return t.token<<8 | uint64(t.passes&0xff) }

// claimEnd applies the clock rule: the store's promise, counted from before
// the request was sent, less 1 % for clocks of different rates and a margin
// for the time it takes to tell.
func claimEnd(sent instant, lease time.Duration) instant {
	return sent.add(lease - lease/100 - min(lease/100, 20*time.Millisecond))
}

// extend moves the claim to what an answer to a request of this time promised.
// It never moves back: answers may overtake each other.
func (t *ticket) extend(sent instant, lease time.Duration) {
	if end := int64(claimEnd(sent, lease)); end > t.claim.Load() {
		t.claim.Store(end)
	}
}

func (t *ticket) valid(now instant) bool { return now < instant(t.claim.Load()) }

func (t *ticket) ref() driver.Ref {
	return driver.Ref{Ticket: &t.Ticket, State: t.state, Unsure: t.unsure}
}

// callLimit bounds one request that concerns tickets of this TTL: several have
// to fit into a lease, so that one lost answer is not a lost lock.
func callLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/6, 50*time.Millisecond), 5*time.Second)
}

// releaseLimit bounds Unlock and Close, and how long a Lock that has no place
// yet goes on asking a store that fails.
func releaseLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 100*time.Millisecond), 5*time.Second)
}

// handOver bounds the hand-overs between goroutines that one grant allows, so
// that other processes get their turn.
const (
	handOverTimes = 255 // the local part of a token is one byte
	handOverTime  = 10 * time.Millisecond
)
