package drivertest

import (
	"sync"
	"time"
)

// standstills are the moments in which this process got no processor. A case
// allows for them where it judges how long a call took: the machine was late, and
// not the driver. A nil pointer has none.
type standstills struct {
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	gaps []standstill
}

type standstill struct {
	end    time.Time
	length time.Duration
}

const (
	standstillTick  = 5 * time.Millisecond
	leastStandstill = 50 * time.Millisecond
)

// watchStandstills begins to look for standstills, until end is called.
func watchStandstills() *standstills {
	s := &standstills{stop: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(standstillTick)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
			case <-s.stop:
				return
			}
			now := time.Now()
			if length := now.Sub(last); length >= leastStandstill {
				s.mu.Lock()
				s.gaps = append(s.gaps, standstill{now, length})
				s.mu.Unlock()
			}
			last = now
		}
	})
	return s
}

// since returns the sum of the standstills since start.
func (s *standstills) since(start time.Time) (sum time.Duration) {
	if s == nil {
		return 0
	}
	time.Sleep(2 * standstillTick) // one that has just ended is noted
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gaps {
		if g.end.After(start) {
			sum += min(g.length, g.end.Sub(start))
		}
	}
	return sum
}

// exceed reports whether a time is longer than allowed, also less the standstills
// since start.
func (s *standstills) exceed(took, allowed time.Duration, start time.Time) bool {
	return took > allowed && took > allowed+s.since(start)
}

// end ends the search.
func (s *standstills) end() {
	if s != nil {
		close(s.stop)
		s.done.Wait()
	}
}
