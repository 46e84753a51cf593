package sqlqueue

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// SweepEvery is the number of joins after which the next step of a sweep is due
// early.
const SweepEvery = 16

// SweepTime bounds one step of a sweep.
const SweepTime = 5 * time.Second

// The sweeps of a client continue until they have gone through the tables twice
// and found nothing idle. Where many queues are idle, sweeps use half of one
// connection's time.
const (
	sweepPause = time.Second            // between two steps
	sweepRest  = 10 * time.Second       // after the last queue, and after an error
	sweepLeast = 100 * time.Millisecond // between two steps, however many join
	sweepBreak = 10 * time.Millisecond  // where many queues are idle
)

// Sweeper runs the steps of a client's sweeps until no queue is idle.
type Sweeper struct {
	// Step sweeps the next few queues. Its errors have no consequence: a later
	// step repeats the work.
	Step func() (Swept, error)
	// Go runs f on a goroutine that the client waits for when it is closed.
	// It returns false if the client is closed already.
	Go func(f func()) bool
	// Closed is closed with the client.
	Closed <-chan struct{}

	joins   atomic.Int64 // since the last step
	running atomic.Bool
	hurry   chan struct{} // of capacity 1
}

// NewSweeper returns the sweeps of a client. They begin with its first join.
func NewSweeper(look func() (Swept, error), goes func(func()) bool, closed <-chan struct{}) *Sweeper {
	return &Sweeper{Step: look, Go: goes, Closed: closed, hurry: make(chan struct{}, 1)}
}

// CountJoins counts joins, and begins the sweeps unless they are under way.
func (s *Sweeper) CountJoins(joins int64) {
	n := s.joins.Add(joins)
	if s.running.CompareAndSwap(false, true) {
		if !s.Go(s.run) {
			s.running.Store(false)
		}
		return
	}
	if n == SweepEvery {
		select {
		case s.hurry <- struct{}{}:
		default:
		}
	}
}

// run sweeps until no queue is idle.
func (s *Sweeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for around := 0; ; {
		s.joins.Store(0)
		start := time.Now()
		found, err := s.Step()
		pause := sweepPause
		if err != nil || found.Next == nil {
			pause = sweepRest
		}
		switch {
		case err != nil || found.Rest > 0 || len(found.Quiet) > 0:
			around = 0
		case found.Next == nil:
			around++
		}
		if found.Removed >= sweepPage/4 {
			around = 0
			pause = max(sweepBreak, time.Since(start))
		}
		if around >= 2 && s.joins.Load() == 0 {
			s.running.Store(false)
			if s.joins.Load() == 0 || !s.running.CompareAndSwap(false, true) {
				return
			}
		}
		if around == 1 && found.Next == nil {
			pause = sweepPause // once more, from the first to the last
		}
		if !s.pause(timer, pause) {
			return
		}
	}
}

// pause waits for the next step, for less time if many tickets join meanwhile.
// It returns false when the client is closed.
func (s *Sweeper) pause(timer *time.Timer, pause time.Duration) bool {
	least := min(pause, sweepLeast)
	timer.Reset(least)
	select {
	case <-timer.C:
	case <-s.Closed:
		return false
	}
	timer.Reset(pause - least)
	select {
	case <-timer.C:
	case <-s.hurry:
	case <-s.Closed:
		return false
	}
	return true
}

// sweep removes idle rows, a few at a time.
func (s *Tables) sweep() (found Swept, err error) {
	if !s.SweepLock.TryLock() {
		return found, driver.Errorf(driver.NotDone, "sweeps are paused")
	}
	defer s.SweepLock.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, SweepTime)
	defer cancel()
	found, err = s.Queues.Sweep(ctx, s.Database, s.sweptTo)
	if err != nil {
		return found, err
	}
	s.sweptTo = found.Next
	for _, name := range found.Quiet {
		if _, err := s.hasTickets(ctx, name); err != nil {
			return found, err
		}
	}
	if sweeper, ok := s.Database.(interface{ Swept(context.Context) }); ok {
		sweeper.Swept(ctx)
	}
	return found, nil
}

// RandomKey returns the key at which the sweeps of a process begin: processes
// that end after one lock must not all sweep the same queues.
func RandomKey() []byte {
	key := make([]byte, 8)
	for i := range key {
		key[i] = byte(rand.Uint32())
	}
	return key
}
