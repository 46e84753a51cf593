// Package certstorage gives certmagic, and so Caddy, locks that renew themselves
// and queue, on whatever storage of certificates.
package certstorage

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast"
)

// Storage is a certmagic.Storage whose locks are Holdfast's. Set the first two
// fields.
type Storage struct {
	certmagic.Storage
	Locks *holdfast.Client

	holds sync.Map // of *holdfast.Hold, by name
}

// Lock waits for its turn. The lock is renewed until Unlock, so the storage needs
// no RenewLockLease.
func (s *Storage) Lock(ctx context.Context, name string) error {
	hold, err := s.Locks.Mutex(name).Lock(ctx)
	if err == nil {
		s.holds.Store(name, hold)
	}
	return err
}

// TryLock reports whether the lock was free.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	hold, err := s.Locks.Mutex(name).TryLock(ctx)
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		return false, nil
	case err != nil:
		return false, err
	}
	s.holds.Store(name, hold)
	return true, nil
}

// Unlock releases the lock. Its error tells a loss, too.
func (s *Storage) Unlock(_ context.Context, name string) error {
	hold, ok := s.holds.LoadAndDelete(name)
	if !ok {
		return fmt.Errorf("lock %q is not held", name)
	}
	return hold.(*holdfast.Hold).Unlock()
}
