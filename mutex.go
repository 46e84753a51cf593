package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Mutex is a lock that one holder has at a time. It is a handle: creating it
// sends nothing, its pointer may be copied and used by many goroutines, and it
// needs no closing.
type Mutex struct{ s *spec }

// Mutex returns the mutex of that name. Each call on the mutex reports a bad
// name or option.
func (c *Client) Mutex(name string, opts ...Option) *Mutex {
	return &Mutex{c.spec(name, kindMutex, 1, opts)}
}

// handle returns the spec of m, nil if no Client made m.
func (m *Mutex) handle() *spec {
	if m == nil {
		return nil
	}
	return m.s
}

// Lock waits for the lock, first come first served on stores with Traits.Fair.
// ctx bounds the wait and carries reentrancy (see the package documentation);
// it does not bound the hold. WithMaxWait bounds the wait alone.
//
// The error is a *WaitError, which wraps the context's cause, if ctx ended, or
// ErrMaxWait; ErrClosed from Shutdown or Close on; ErrKindMismatch if the name
// is in use as another kind of lock; ErrUpgrade; or a *StoreError if the store
// refused, or gave no answer at all for a third of the TTL (at least 2 s and at
// most 5 s) before the Lock had a place in the queue. Lock waits for a store that
// is slow, or not ready yet; once it has a place, the wait outlasts silence too.
// After an error nothing of the attempt stays behind at the store.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) { return m.handle().lock(ctx, 1, false) }

// TryLock takes the lock if the lock is free and has no waiter; otherwise it
// returns a *HeldError, which matches ErrHeld. It does not wait for a turn; it
// blocks for a round trip. Other errors are those of Lock; the error of a store
// that is not ready yet comes at once (see StoreError.RetryAfter).
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) { return m.handle().lock(ctx, 1, true) }

// Do runs fn while holding the lock. The context given to fn ends with ctx; with
// the loss of the lock, whose *LostError is then its cause; or when Shutdown or
// Close asks fn to stop, with ErrShutdown as its cause: the lock is held until fn
// has returned, after Close for a third of the TTL, at most 5 s. The context
// carries reentrancy and the token (see Token). Do releases the lock when fn
// returns, panics, or exits its goroutine.
//
// Do returns an error of Lock without having run fn; otherwise it returns fn's
// error, joined with ErrShutdown if fn had been asked to stop. If the hold had
// ended by the instant at which fn returned, Do joins the *LostError or
// ErrClosed with fn's error, also if fn returned nil. Do joins a *LostError that
// only the release found in the same way.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return m.handle().do(ctx, 1, fn)
}

// RWMutex is a lock that many readers or one writer have at a time. A reader
// that comes after a waiting writer waits behind it. There is no upgrade: a
// write lock taken with the context of a read lock fails with ErrUpgrade; a
// read lock taken with the context of a write lock nests in it.
type RWMutex struct{ s *spec }

// RWMutex returns the read/write lock of that name. Each call on it reports a
// bad name or option, and a store without Traits.Shared.
func (c *Client) RWMutex(name string, opts ...Option) *RWMutex {
	return &RWMutex{c.spec(name, kindRW, driver.RWLimit, opts)}
}

// handle returns the spec of m, nil if no Client made m.
func (m *RWMutex) handle() *spec {
	if m == nil {
		return nil
	}
	return m.s
}

// Lock waits for the lock as a writer. It is like Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) (*Hold, error) {
	return m.handle().lock(ctx, driver.RWLimit, false)
}

// TryLock takes the lock as a writer if it is free. It is like Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.handle().lock(ctx, driver.RWLimit, true)
}

// RLock waits for the lock as a reader. It is like Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) { return m.handle().lock(ctx, 1, false) }

// TryRLock takes the lock as a reader if no writer holds it or waits for it. It
// is like Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) { return m.handle().lock(ctx, 1, true) }

// Do runs fn while holding the lock as a writer. It is like Mutex.Do.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return m.handle().do(ctx, driver.RWLimit, fn)
}

// RDo runs fn while holding the lock as a reader. It is like Mutex.Do.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error) error {
	return m.handle().do(ctx, 1, fn)
}
