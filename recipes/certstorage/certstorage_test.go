package certstorage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/caddyserver/certmagic"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/recipes/certstorage"
)

// certmagic cleans its cache of certificates on a goroutine that is made with the
// package.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

var _ certmagic.TryLocker = (*certstorage.Storage)(nil)

func storage(t *testing.T, store *memlock.Store, folder string) *certstorage.Storage {
	t.Helper()
	locks, err := holdfast.New(memlock.New(store))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return &certstorage.Storage{Storage: &certmagic.FileStorage{Path: folder}, Locks: locks}
}

// TestStorageLocksBetweenMachines lets two machines add to one value under the lock
// of its key, as certmagic does when it obtains a certificate.
func TestStorageLocksBetweenMachines(t *testing.T) {
	store, folder := memlock.NewStore(), t.TempDir()
	const rounds = 50
	var all sync.WaitGroup
	for range 2 {
		s := storage(t, store, folder)
		all.Go(func() {
			for range rounds {
				if err := s.Lock(t.Context(), "issue_cert_example.org"); err != nil {
					t.Error(err)
					return
				}
				old, err := s.Load(t.Context(), "count")
				var n int
				if err == nil {
					_, err = fmt.Sscan(string(old), &n)
				}
				if err != nil && n != 0 {
					t.Error(err)
				}
				if err := s.Store(t.Context(), "count", []byte(fmt.Sprint(n+1))); err != nil {
					t.Error(err)
				}
				if err := s.Unlock(t.Context(), "issue_cert_example.org"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got, err := storage(t, store, folder).Load(t.Context(), "count")
	if err != nil || string(got) != fmt.Sprint(2*rounds) {
		t.Errorf("%s %v, want %d", got, err, 2*rounds)
	}
}

func TestStorageTryLockRefuses(t *testing.T) {
	store := memlock.NewStore()
	a, b := storage(t, store, t.TempDir()), storage(t, store, t.TempDir())
	if ok, err := a.TryLock(t.Context(), "n"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := b.TryLock(t.Context(), "n"); ok || err != nil {
		t.Error(ok, err)
	}
	if err := b.Unlock(t.Context(), "n"); err == nil {
		t.Error("a lock that is not held was unlocked")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := b.Lock(ended, "n"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := a.Unlock(ended, "n"); err != nil {
		t.Error(err)
	}
	if ok, err := b.TryLock(t.Context(), "n"); !ok || err != nil {
		t.Error(ok, err)
	}
	if err := b.Unlock(t.Context(), "n"); err != nil {
		t.Error(err)
	}
}
