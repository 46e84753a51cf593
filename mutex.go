package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Mutex is a lock that one holder has at a time. It is a handle: making it
// sends nothing, it may be copied by pointer and used by many goroutines, and
// it needs no closing.
type Mutex struct{ s *spec }

// Mutex returns the mutex of that name. A bad name or option is reported by
// each call on it.
func (c *Client) Mutex(name string, opts ...Option) *Mutex {
	return &Mutex{c.spec(name, 1, opts)}
}

// Lock waits for the lock, first come first served on stores with
// Traits.Fair. ctx bounds the wait and carries reentrancy (see the package
// documentation); it does not bound the hold.
//
// The error is a *WaitError, which wraps the context's cause, when ctx ended;
// ErrClosed when the client was closed; ErrKindMismatch when the name is used
// as another kind of lock; ErrUpgrade; a *StoreError when the store refused, or
// did not answer for a third of the TTL (5 s at most) before there was a place
// in line. Once there is a place, the wait outlasts failures of the store.
// After an error nothing of the attempt stays behind at the store.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) { return m.s.lock(ctx, 1, false) }

// TryLock takes the lock if it is free and nobody waits for it, and otherwise
// returns a *HeldError, which matches ErrHeld. It does not wait for a turn; it
// blocks for a round trip. Other errors are those of Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) { return m.s.lock(ctx, 1, true) }

// Do runs fn while holding the lock. The context given to fn ends with ctx, or
// with the loss of the lock, whose *LostError is then its cause; it carries
// reentrancy and the token (see Token). The lock is released when fn returns,
// panics, or exits its goroutine.
//
// Do returns the errors of Lock, in which case fn was not run; else fn's error;
// and if the hold was over at the instant when fn returned, fn's error joined
// with the *LostError or ErrClosed, also if fn returned nil.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return m.s.do(ctx, 1, fn)
}

// RWMutex is a lock that many readers or one writer have at a time. A reader
// that comes after a waiting writer waits behind it. There is no upgrade: a
// writer inside its own read lock is refused with ErrUpgrade; a reader inside
// its own write lock nests in it.
type RWMutex struct{ s *spec }

// RWMutex returns the read/write lock of that name. A bad name or option is
// reported by each call on it, as is a store without Traits.Shared.
func (c *Client) RWMutex(name string, opts ...Option) *RWMutex {
	return &RWMutex{c.spec(name, driver.RWLimit, opts)}
}

// Lock waits for the lock as a writer. It is like Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) (*Hold, error) {
	return m.s.lock(ctx, driver.RWLimit, false)
}

// TryLock takes the lock as a writer if it is free. It is like Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.s.lock(ctx, driver.RWLimit, true)
}

// RLock waits for the lock as a reader. It is like Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) { return m.s.lock(ctx, 1, false) }

// TryRLock takes the lock as a reader if no writer has it or waits for it. It
// is like Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) { return m.s.lock(ctx, 1, true) }

// Do runs fn while holding the lock as a writer. It is like Mutex.Do.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return m.s.do(ctx, driver.RWLimit, fn)
}

// RDo runs fn while holding the lock as a reader. It is like Mutex.Do.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error) error {
	return m.s.do(ctx, 1, fn)
}
