package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// Semaphore is a lock with a number of permits, which several holders share.
// All programs must use one name with one size; see WithExistingSize for a change
// of the size. Semaphores have no named owners, and their tokens only tell
// grants apart.
type Semaphore struct{ s *spec }

// Semaphore returns the semaphore of that name with that many permits, from 1
// to 2^31-1, but not 2^30, which marks read/write locks at the store. To the
// store, a semaphore with one permit is a Mutex. Each call on it reports a bad
// name, number or option, and a store without Traits.Shared.
func (c *Client) Semaphore(name string, permits int, opts ...Option) *Semaphore {
	s := c.spec(name, kindSemaphore, int64(permits), opts)
	switch {
	case s.err != nil:
	case permits < 1 || permits > maxPermits || int64(permits) == driver.RWLimit:
		s.err = fmt.Errorf("holdfast: %q: a semaphore cannot have %d permits", name, permits)
	case s.key.owner != "":
		s.err = fmt.Errorf("holdfast: %q: semaphores have no named owners", name)
	}
	return &Semaphore{s}
}

// handle returns the spec of s, nil if no Client made s.
func (s *Semaphore) handle() *spec {
	if s == nil {
		return nil
	}
	return s.s
}

// Acquire waits for n permits at once, behind all earlier waiters, also behind
// those that wait for more permits. It is like Mutex.Lock. n below 1 or above
// the semaphore's size is an error; with WithExistingSize, n above both this size
// and the size at the store is. Hold.Unlock gives the permits back together.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) { return s.take(ctx, n, false) }

// TryAcquire takes n permits if they are free and the semaphore has no waiter.
// It is like Mutex.TryLock.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	return s.take(ctx, n, true)
}

func (s *Semaphore) take(ctx context.Context, n int, try bool) (*Hold, error) {
	sp := s.handle()
	units, err := sp.permits(ctx, n)
	if err != nil {
		return nil, err
	}
	return sp.lock(ctx, units, try)
}

// Do runs fn while holding n permits. It is like Mutex.Do.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	sp := s.handle()
	units, err := sp.permits(ctx, n)
	if err != nil {
		return err
	}
	return sp.do(ctx, units, fn)
}
