package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// Semaphore lets a number of permits be held at a time. All programs must use
// one name with one size; see WithLineLimit for changing it. Semaphores have no
// named owners, and their tokens only tell grants apart.
type Semaphore struct{ s *spec }

// Semaphore returns the semaphore of that name with that many permits, from 1
// to 2^31-1, but not 2^30, which marks read/write locks at the store. With one
// permit it is a Mutex to the store. A bad name, number or option is reported by
// each call on it, as is a store without Traits.Shared.
func (c *Client) Semaphore(name string, permits int, opts ...Option) *Semaphore {
	s := c.spec(name, int64(permits), opts)
	switch {
	case s.err != nil:
	case permits < 1 || permits > maxPermits || int64(permits) == driver.RWLimit:
		s.err = fmt.Errorf("holdfast: %q: a semaphore cannot have %d permits", name, permits)
	case s.key.owner != "":
		s.err = fmt.Errorf("holdfast: %q: semaphores have no named owners", name)
	}
	return &Semaphore{s}
}

// Acquire waits for n permits at once, behind all who came before, also if
// they wait for more. It is like Mutex.Lock; n below 1 or above the semaphore's
// size is an error. The permits are given back together, by Hold.Unlock.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) { return s.take(ctx, n, false) }

// TryAcquire takes n permits if they are free and nobody waits. It is like
// Mutex.TryLock.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	return s.take(ctx, n, true)
}

func (s *Semaphore) take(ctx context.Context, n int, try bool) (*Hold, error) {
	units, err := s.s.permits(n)
	if err != nil {
		return nil, err
	}
	return s.s.lock(ctx, units, try)
}

// Do runs fn while holding n permits. It is like Mutex.Do.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	units, err := s.s.permits(n)
	if err != nil {
		return err
	}
	return s.s.do(ctx, units, fn)
}
