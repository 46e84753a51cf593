package etcdlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// janitor is the goroutine for background work: it keeps sessions alive, removes
// places that the core does not renew, and watches places that hold or wait for
// longer. These watches wake a waiter whose predecessor goes without a wake-up:
// a client that died, or one that does not use our layout.
type janitor struct {
	*requests
	wake chan struct{}
}

// kick makes the next round begin now.
func (j *janitor) kick() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *janitor) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	most := maxReads
	checked := make(chan int, 1)
	for busy := false; j.life.ctx.Err() == nil; {
		// Requests may go unanswered until their time is over, and sessions
		// have to be kept alive meanwhile. So checkPlaces runs on a goroutine of its
		// own.
		if !busy {
			over, reads := j.places.takeDue(most)
			busy = len(over)+len(reads) > 0 && j.life.run(func() { checked <- j.checkPlaces(over, reads, most) })
		}
		at := j.places.beginRound(j.sessions.tend(j.places.abandoned(j.sessions.list())), !busy)
		timer.Reset(max(0, time.Until(at)))
		select {
		case most = <-checked:
			busy = false
		case <-timer.C:
		case <-j.wake:
		case <-j.life.ctx.Done():
		}
	}
}

// checkPlaces removes and reads the places that takeDue returned, and returns how
// many the next round may read: a single one after a read that had no answer.
func (j *janitor) checkPlaces(over []driver.Ref, reads []*place, most int) int {
	if len(over) > 0 {
		ctx, cancel := context.WithTimeout(j.life.ctx, max(over[0].TTL/3, time.Second))
		answers := j.leaveAll(ctx, over)
		cancel()
		for i, a := range answers {
			if a.Err == nil && over[i].State != 0 { // its Join was answered
				j.pushes.push(over[i].ID, driver.Status{State: driver.Gone})
			}
		}
	}
	for len(reads) > 0 {
		least := max(reads[0].t.TTL/6, 500*time.Millisecond)
		ctx, cancel := context.WithTimeout(j.life.ctx, j.pace.times(4, least, 4*least))
		n, seen, err := j.readPlaces(ctx, reads)
		cancel()
		if err != nil {
			for _, p := range reads { // again later
				j.places.onRead(p, placeRead{err: err})
			}
			return 1
		}
		for i, s := range seen {
			j.places.onRead(reads[i], s)
		}
		reads, most = reads[n:], maxReads
	}
	return most
}
