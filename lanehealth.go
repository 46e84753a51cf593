package holdfast

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// laneHealth records what a client knows of one lane of its store: when the
// store last replied, how long requests have gone without a reply, and how long
// replies take. From these it tells a slow store, for which a Lock waits, from
// a silent one, which a Lock without a place reports.
type laneHealth struct {
	c *Client

	mu                sync.Mutex
	lastReply         instant                     // 0: none yet
	silentSince       instant                     // start of the present silence; never: requests are answered
	inFlight          int                         // number of requests
	responseTime      [requestKinds]time.Duration // the longest of late, by kind of request
	longestFailedJoin time.Duration               // the longest time that a Join since the last reply waited in vain
	lastErr           error                       // of the last request without a reply
	firstProbe        instant                     // first probe of the present silence; never: none

	// State of the probes, see probe.go.
	probeTarget   string        // the name to inspect
	probeTTL      time.Duration // of the lock that a probe is sent for
	joinsInFlight int           // number of Joins
	probeDelay    time.Duration // the least of those Joins' delays
	probeTimer    *time.Timer
	probeTimerAt  instant       // when probeTimer fires; never: stopped
	waitingCalls  int           // number of calls in awaitReply
	nextReply     chan struct{} // closed by the next reply; nil: no call waits
	probing       bool
}

// requestKind is a kind of request; each has a response time of its own.
type requestKind uint8

const (
	requestJoin requestKind = iota
	requestRenew
	requestLeave
	requestInspect
	requestMark
	requestKinds
)

func (lh *laneHealth) init(c *Client) {
	lh.c, lh.silentSince, lh.probeTimerAt, lh.firstProbe = c, never, never, never
}

// lanes has the laneHealth of each lane of a client's store.
type lanes struct {
	c    *Client
	only laneHealth // of a store with one lane
	mu   sync.Mutex
	byID map[uint64]*laneHealth // of a store with several lanes
}

func (l *lanes) init(c *Client) {
	l.c = c
	l.only.init(c)
	l.byID = make(map[uint64]*laneHealth)
}

// of returns the laneHealth of the lane of a name.
func (l *lanes) of(name string) *laneHealth {
	lane := l.c.traits.Lane
	if lane == nil {
		return &l.only
	}
	id := lane(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	lh := l.byID[id]
	if lh == nil {
		lh = new(laneHealth)
		lh.init(l.c)
		l.byID[id] = lh
	}
	return lh
}

// stopProbes stops the timers of all lanes, after the last queue was made.
func (l *lanes) stopProbes() {
	all := []*laneHealth{&l.only}
	l.mu.Lock()
	for _, lh := range l.byID {
		all = append(all, lh)
	}
	l.mu.Unlock()
	for _, lh := range all {
		lh.stopProbeTimer()
	}
}

// requestSent notes that a request is sent, and returns the time.
func (lh *laneHealth) requestSent() instant {
	now := lh.c.clock.now()
	lh.mu.Lock()
	lh.requestSentLocked(now)
	lh.mu.Unlock()
	return now
}

// requestSentLocked is requestSent at the given instant.
func (lh *laneHealth) requestSentLocked(now instant) {
	lh.inFlight++
	lh.silentSince = min(lh.silentSince, now)
}

// requestEnded notes the outcome of a request that was sent with ctx at the
// given instant. A reply ends the silence; for the requests still in flight a
// new one begins. A call that ended before it sent anything begins no silence.
func (lh *laneHealth) requestEnded(ctx context.Context, what requestKind, sent instant, err error) {
	now := lh.c.clock.now()
	took := now.sub(sent)
	unsent := driver.ClassOf(err) == driver.NotDone && ctx.Err() != nil
	lh.mu.Lock()
	defer lh.mu.Unlock()
	lh.inFlight--
	switch {
	case isReply(err) && !unsent:
		lh.lastReply, lh.silentSince, lh.firstProbe, lh.lastErr = now, never, never, nil
		if lh.inFlight > 0 {
			lh.silentSince = now
		}
		lh.responseTime[what] = max(took, lh.responseTime[what]-(lh.responseTime[what]-took)/8)
		lh.responseTime[requestJoin] = max(lh.responseTime[requestJoin], lh.longestFailedJoin) // a reply that came too late
		lh.longestFailedJoin = 0
		if lh.nextReply != nil {
			close(lh.nextReply)
			lh.nextReply = nil
		}
	case unsent:
		if lh.inFlight == 0 && lh.silentSince >= sent {
			lh.silentSince, lh.firstProbe = never, never
		}
	case lh.lastReply > sent:
		lh.responseTime[what] = max(lh.responseTime[what], took) // other requests were answered in the meantime
		lh.lastErr = err
	default:
		lh.lastErr = err
		if what == requestJoin {
			lh.longestFailedJoin = max(lh.longestFailedJoin, took)
		}
	}
}

// isReply reports whether err is the store's own reply to a request.
func isReply(err error) bool {
	if err == nil {
		return true
	}
	if _, ok := driver.IsNotReady(err); ok {
		return true
	}
	switch driver.ClassOf(err) {
	case driver.Refused:
		return !errors.Is(err, driver.ErrClosed)
	case driver.NotDone: // not when the context ended before sending, see requestEnded
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	return false
}

// silence returns how long requests have gone without a reply; 0: none has.
func (lh *laneHealth) silence() time.Duration {
	lh.mu.Lock()
	defer lh.mu.Unlock()
	return lh.silenceLocked(lh.c.clock.now())
}

// silenceLocked is silence at the given instant.
func (lh *laneHealth) silenceLocked(now instant) time.Duration {
	if lh.silentSince >= now {
		return 0
	}
	return now.sub(lh.silentSince)
}

// silenceWithin returns the silence as a Lock with this retry budget counts it.
// The second half counts from the first probe on: if this process gets no
// processor to send a probe, the store had nothing to answer.
func (lh *laneHealth) silenceWithin(budget time.Duration) time.Duration {
	lh.mu.Lock()
	defer lh.mu.Unlock()
	now := lh.c.clock.now()
	silence := lh.silenceLocked(now)
	if lh.firstProbe > now {
		return min(silence, budget/2)
	}
	return min(silence, budget/2+now.sub(lh.firstProbe))
}

// silentLongerThan returns the start of the present silence, and whether the
// silence is long enough for a lease to have ended.
func (lh *laneHealth) silentLongerThan(lease time.Duration) (since instant, long bool) {
	lh.mu.Lock()
	defer lh.mu.Unlock()
	return lh.silentSince, lh.silentSince != never && lh.silenceLocked(lh.c.clock.now()) >= lease
}

// requestTimeout bounds one request. The bound is at least least; where replies
// take long, it is three times the response time, so that a slow store can
// answer; and it is never above most, which the leases allow. Until a request of
// this kind has had a reply, the Joins show how slow the store is.
func (lh *laneHealth) requestTimeout(what requestKind, least, most time.Duration) time.Duration {
	lh.mu.Lock()
	defer lh.mu.Unlock()
	usual := lh.responseTime[what]
	if usual == 0 {
		usual = lh.responseTime[requestJoin]
	}
	return max(least, min(3*usual, most))
}

// renewBatch calls the driver's Renew and notes whether the store replied.
// Without an error it returns one Status for each ticket.
func (lh *laneHealth) renewBatch(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return lh.batch(ctx, requestRenew, driver.Driver.Renew, refs)
}

// leaveBatch is renewBatch for Leave.
func (lh *laneHealth) leaveBatch(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return lh.batch(ctx, requestLeave, driver.Driver.Leave, refs)
}

func (lh *laneHealth) batch(ctx context.Context, what requestKind, send func(driver.Driver, context.Context, []driver.Ref) ([]driver.Status, error), refs []driver.Ref) ([]driver.Status, error) {
	sent := lh.requestSent()
	statuses, err := send(lh.c.drv, ctx, refs)
	if err == nil && len(statuses) != len(refs) {
		err = driver.Errorf(driver.Unknown, "%d answers for %d tickets", len(statuses), len(refs))
	}
	lh.requestEnded(ctx, what, sent, batchErr(statuses, err))
	return statuses, err
}

// inspectQueue calls the driver's Inspect and notes whether the store replied.
func (lh *laneHealth) inspectQueue(ctx context.Context, name string) (driver.Queue, error) {
	sent := lh.requestSent()
	dq, err := lh.c.drv.Inspect(ctx, name)
	lh.requestEnded(ctx, requestInspect, sent, err)
	return dq, err
}

// batchErr returns nil if the store replied about at least one ticket, else the
// error of the batch.
func batchErr(statuses []driver.Status, err error) error {
	if err != nil {
		return err
	}
	for i := range statuses {
		if err = statuses[i].Err; isReply(err) {
			return nil
		}
	}
	return err
}
