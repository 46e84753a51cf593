package etcdlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF78_RestoredFromASnapshot restores older data, and with it older
// revisions. It checks that the holder learns of its loss, and that the next
// holder gets the lock with a token from before. A guard that has seen the
// later token refuses the next holder's writes: they stall, and overwrite
// nothing.
func TestF78_RestoredFromASnapshot(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{Version: servers.EtcdNewest})
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
	lost(t, h, 2*time.Minute)
	next := lock(t, other, "n")
	defer next.Unlock()
	if next.Token() > h.Token() {
		t.Errorf("token %d after %d: the store did not go back, and nothing was tested", next.Token(), h.Token())
	}
	if err := guard.Check(fence.Token{Value: next.Token(), Owner: "second"}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a token of before passes the guard: %v", err)
	}
}
