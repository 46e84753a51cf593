package holdfast

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ticket is one attempt to take a lock, as the core tracks it. Its state moves
// only forward: Waiting, Held, Gone.
type ticket struct {
	driver.Ticket
	queue *queue

	// Guarded by queue.mu.
	state       driver.State // 0 until the first reply
	joinPending bool         // a Join got no reply; never reset
	handOffs    uint16       // local hand-offs so far, the low part of the token
	joinsSent   int32        // number of Joins sent
	joinSentAt  instant      // when the first Join that may have taken effect was sent
	grantedAt   instant      // when this client learned of the grant
	storeToken  uint64       // the store's part of the token
	holds       holdList     // the holds of this ticket; several only for readers
	extra       *ticketExtra // nil when there is nothing to note

	// claim is the instant at which the ticket's claim ends. It is written
	// under queue.mu and read anywhere.
	claim atomic.Int64

	renewal renewalState // guarded by renewer.mu
}

// ticketExtra records what few tickets need beside their state.
type ticketExtra struct {
	earlyPush       driver.Status // a push that came before the reply to Join
	holder          string        // metadata of a holder that keeps the ticket waiting
	notBefore       instant       // the store is not ready before this
	awaitReplyAfter instant       // no Join before the store has replied after this
	ahead           int32         // of a waiting ticket: places before it, -1 where not known
	renewal         *userRenewal  // the renewal that Client.Renew waits for
	pushed          bool          // earlyPush came since the last pause before a Join
	stalePush       bool          // a push may be about a place that has expired since; never reset
}

// ensureExtra returns the extra record of t, which it creates if necessary.
func (t *ticket) ensureExtra() *ticketExtra {
	if t.extra == nil {
		t.extra = new(ticketExtra)
	}
	return t.extra
}

// mayHearStalePush reports whether a push may be about an earlier place of t.
func (t *ticket) mayHearStalePush() bool { return t.extra != nil && t.extra.stalePush }

// noteHolder records the holder that keeps t waiting.
func (t *ticket) noteHolder(holder string) {
	if holder != "" || t.extra != nil {
		t.ensureExtra().holder = holder
	}
}

// currentToken returns the token of t's present hold. Readers, who share a ticket,
// have another token. A store without tokens has none after a local hand-off either.
func (t *ticket) currentToken() uint64 {
	if t.storeToken == 0 {
		return 0
	}
	return t.storeToken<<8 | uint64(t.handOffs&0xff)
}

// claimEnd applies the clock rule. A claim lasts for the lease, counted from
// before the request was sent, less 1 % for clocks of different rates and less
// a margin for the time that a report of a loss takes.
func claimEnd(sent instant, lease time.Duration) instant {
	return sent.add(lease - lease/100 - min(lease/100, 20*time.Millisecond))
}

// extend moves the claim forward to the end that the reply to a request
// promised. Replies may overtake each other, so extend never moves the claim
// back.
func (t *ticket) extend(sent instant, lease time.Duration) {
	if end := int64(claimEnd(sent, lease)); end > t.claim.Load() {
		t.claim.Store(end)
	}
}

func (t *ticket) valid(now instant) bool { return now < instant(t.claim.Load()) }

func (t *ticket) ref() driver.Ref {
	return driver.Ref{Ticket: &t.Ticket, State: t.state, JoinPending: t.joinPending}
}

// callTimeout bounds one request about tickets of this TTL. Several requests
// fit into a lease, so that one lost reply does not cost a lock.
func callTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/6, 50*time.Millisecond), 5*time.Second)
}

// renewTimeout is callTimeout for renewals: even the shortest lease leaves time
// for a second renewal.
func renewTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/6, min(ttl/4, 20*time.Millisecond)), 5*time.Second)
}

// minSilence is the least time without a reply that ends a Lock: a busy machine
// can stand still for a second, whatever the TTL.
const minSilence = 2 * time.Second

// silenceBudget bounds how long a Lock without a place keeps trying a store that
// does not reply.
func silenceBudget(ttl time.Duration) time.Duration {
	return min(max(ttl/3, minSilence), 5*time.Second)
}

// probeTimeout bounds a probe. A probe takes no place, so its bound need not fit
// into a lease; a second probe fits into the silenceBudget.
func probeTimeout(ttl time.Duration) time.Duration {
	return max(callTimeout(ttl), silenceBudget(ttl)/2)
}

// releaseTimeout bounds Unlock and Close, and the wait of Close and MaxHold for
// functions.
func releaseTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 100*time.Millisecond), 5*time.Second)
}

// Bounds on the local hand-offs of one grant, so that other processes get their
// turn.
const (
	maxHandOffs    = 255 // the local part of a token is one byte
	maxHandOffTime = 10 * time.Millisecond
)
