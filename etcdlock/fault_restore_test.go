package etcdlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestF78_RestoredFromASnapshot: an operator brings back the data of before, and
// revisions with them. The holder is told that it lost its lock, the next one
// gets it, with a token of before; and a guard that has seen the later token lets
// that one's writes in no more than those of the first: they stall, and nothing is
// written over.
func TestF78_RestoredFromASnapshot(t *testing.T) {
	t.Parallel()
	s := backends.Etcd(t, backends.EtcdOptions{Version: backends.EtcdNewest})
	c, other := locks(t, s, "", holdfast.WithTTL(10*time.Second)), locks(t, s, "", holdfast.WithTTL(10*time.Second))
	before := lock(t, c, "n")
	if err := before.Unlock(); err != nil {
		t.Fatal(err)
	}
	restore := s.Members[0].Snapshot(t)
	for range 5 {
		if err := lock(t, c, "n").Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	h := lock(t, c, "n")
	var guard fence.Guard
	if err := guard.Check(fence.Token{Value: h.Token(), Owner: "first"}); err != nil {
		t.Fatal(err)
	}
	restore()
	lost(t, h, 30*time.Second)
	next := lock(t, other, "n")
	defer next.Unlock()
	if next.Token() > h.Token() {
		t.Errorf("token %d after %d: the store did not go back, and nothing was tested", next.Token(), h.Token())
	}
	if err := guard.Check(fence.Token{Value: next.Token(), Owner: "second"}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a token of before passes the guard: %v", err)
	}
}
