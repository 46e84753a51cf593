package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// A probe is a request that takes no place and shows whether the store still
// replies. Probes are sent when a Join has had no reply for its probe delay, well
// before its retry budget is spent, so that a merely slow store is not given up; and after a silence longer
// than a lease, before a new Join. A Join repeated into silence could take effect
// each time, so that its client would hold without knowing, for ever.

// probeName is the name to inspect in a store with one lane: no client locks
// it, so the reply costs little. With several lanes, the name decides the lane,
// so a probe inspects a name that is locked.
const probeName = "holdfast/answers"

// joinSent notes that a Join for a Lock with this probe delay is sent, and
// returns the time.
func (lh *laneHealth) joinSent(key *queueKey, delay time.Duration) (sent instant) {
	now := lh.c.clock.now()
	lh.mu.Lock()
	defer lh.mu.Unlock()
	lh.requestSentLocked(now)
	lh.scheduleProbeLocked(key, delay, now)
	lh.joinsInFlight++
	return now
}

// joinEnded notes the outcome of a Join.
func (lh *laneHealth) joinEnded(ctx context.Context, sent instant, err error) {
	lh.requestEnded(ctx, requestJoin, sent, err)
	lh.mu.Lock()
	lh.joinsInFlight--
	lh.mu.Unlock()
}

// scheduleProbeLocked sets the timer of checkSilence for a Lock with this probe
// delay.
func (lh *laneHealth) scheduleProbeLocked(key *queueKey, delay time.Duration, now instant) {
	if lh.joinsInFlight+lh.waitingCalls == 0 || delay < lh.probeDelay {
		lh.probeDelay = delay
	}
	lh.probeTarget, lh.probeTTL = key.name, key.ttl
	lh.armProbeLocked(now, lh.probeDelay)
}

// armProbeLocked makes checkSilence run after d, unless it runs earlier anyway.
func (lh *laneHealth) armProbeLocked(now instant, d time.Duration) {
	at := now.add(d)
	if at >= lh.probeTimerAt {
		return
	}
	lh.probeTimerAt = at
	if lh.probeTimer == nil {
		lh.probeTimer = time.AfterFunc(d, lh.checkSilence)
	} else {
		lh.probeTimer.Reset(d)
	}
}

// stopProbeTimer stops the timer when the client closes.
func (lh *laneHealth) stopProbeTimer() {
	lh.mu.Lock()
	defer lh.mu.Unlock()
	if lh.probeTimer != nil {
		lh.probeTimer.Stop()
	}
}

// checkSilence runs when the timer fires. While the store is silent, it sends
// probes and ends the Locks that have no place and whose retry budget is spent.
func (lh *laneHealth) checkSilence() {
	if !lh.c.beginCall() {
		return
	}
	defer lh.c.calls.Done()
	lh.mu.Lock()
	lh.probeTimerAt = never
	idle, delay := lh.joinsInFlight+lh.waitingCalls == 0, lh.probeDelay // idle also between two Joins
	silence := lh.silenceLocked(lh.c.clock.now())
	lh.mu.Unlock()
	next := delay
	if silence < delay {
		next -= silence
	}
	if idle || silence >= delay {
		end := never
		if silence > 0 {
			end = lh.endOverBudget()
		}
		if idle && end == never {
			return
		}
		next = max(min(next, time.Duration(end)), time.Millisecond)
	}
	lh.mu.Lock()
	defer lh.mu.Unlock()
	if !lh.c.closing() {
		lh.probeIfSilentLocked()
		lh.armProbeLocked(lh.c.clock.now(), next)
	}
}

// probeAfterFailure sends probes after a failed Join if the store has been
// silent for the probe delay.
func (lh *laneHealth) probeAfterFailure(key *queueKey, delay time.Duration) {
	lh.mu.Lock()
	defer lh.mu.Unlock()
	if lh.joinsInFlight+lh.waitingCalls == 0 {
		lh.probeDelay = delay
	}
	lh.probeTarget, lh.probeTTL = key.name, key.ttl
	lh.probeIfSilentLocked()
}

// probeIfSilentLocked starts the probes if the silence has lasted for the probe
// delay.
func (lh *laneHealth) probeIfSilentLocked() {
	if lh.silenceLocked(lh.c.clock.now()) >= lh.probeDelay {
		lh.startProbeLocked()
	}
}

// startProbeLocked starts the probes, unless they run already.
func (lh *laneHealth) startProbeLocked() {
	if !lh.probing && lh.c.beginCall() {
		lh.probing = true
		go lh.probe()
	}
}

// awaitReply waits until the store has replied after an instant, the context
// ends, or the client is closed. It sends probes meanwhile. It reports whether
// the store replied.
func (lh *laneHealth) awaitReply(ctx context.Context, key *queueKey, after instant) bool {
	for {
		lh.mu.Lock()
		if lh.lastReply > after {
			lh.mu.Unlock()
			return true
		}
		if lh.nextReply == nil {
			lh.nextReply = make(chan struct{})
		}
		news := lh.nextReply
		lh.scheduleProbeLocked(key, releaseTimeout(key.ttl)/2, lh.c.clock.now())
		lh.waitingCalls++
		lh.startProbeLocked()
		lh.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		case <-lh.c.shutdown.closing:
		}
		lh.mu.Lock()
		lh.waitingCalls--
		replied := lh.lastReply > after
		lh.mu.Unlock()
		if replied || ctx.Err() != nil || lh.c.closing() {
			return replied
		}
		if !lh.pause(ctx, time.Millisecond) { // the reply was to an earlier request
			return false
		}
	}
}

// pause waits for d, and reports false if the context or the client ends first.
func (lh *laneHealth) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-lh.c.shutdown.closing:
	}
	return false
}

// probeNeededLocked reports whether another probe is needed.
func (lh *laneHealth) probeNeededLocked() bool {
	return lh.waitingCalls > 0 && lh.nextReply != nil || lh.joinsInFlight > 0 && lh.silenceLocked(lh.c.clock.now()) >= lh.probeDelay
}

// probe sends one probe at a time, until the store replies or no call waits for
// a reply any more.
func (lh *laneHealth) probe() {
	defer lh.c.calls.Done()
	for tries := 0; ; tries++ {
		lh.mu.Lock()
		name, ttl := lh.probeTarget, lh.probeTTL
		lh.firstProbe = min(lh.firstProbe, lh.c.clock.now())
		lh.mu.Unlock()
		if lh.c.traits.Lane == nil {
			name = probeName
		}
		ctx, cancel := context.WithTimeout(lh.c.pushCtx, lh.requestTimeout(requestInspect, probeTimeout(ttl), silenceBudget(ttl)))
		_, _ = lh.inspectQueue(ctx, name)
		cancel()
		lh.mu.Lock()
		if !lh.probeNeededLocked() || lh.c.pushCtx.Err() != nil {
			lh.probing = false
			lh.mu.Unlock()
			return
		}
		lh.mu.Unlock()
		pause := time.NewTimer(backOff(tries, ttl))
		select {
		case <-pause.C:
		case <-lh.c.pushCtx.Done():
		}
		pause.Stop()
	}
}

// backOff returns the pause before a request is repeated, after so many tries.
func backOff(tries int, ttl time.Duration) time.Duration {
	b := backoff.Backoff{First: time.Millisecond, Last: max(time.Millisecond, min(ttl/20, 1024*time.Millisecond)), Factor: 4}
	return b.Pause(tries)
}

// silenceError returns the error, of this class, of a Lock that ends because
// the store is silent.
func (lh *laneHealth) silenceError(class driver.Class) error {
	lh.mu.Lock()
	silence, why := lh.silenceLocked(lh.c.clock.now()).Round(time.Millisecond), lh.lastErr
	lh.mu.Unlock()
	if why == nil || errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded) {
		return driver.Errorf(class, "the store has not answered for %v", silence)
	}
	if e, ok := why.(*driver.Error); ok && e.Class == class { // the class is said once
		why = e.Err
	}
	return driver.Errorf(class, "the store has not answered for %v: %w", silence, why)
}
