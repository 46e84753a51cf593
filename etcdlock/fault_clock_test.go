package etcdlock_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF18_F19_ClockSet restarts each member, the leader too, with its monotonic
// clock, by which it judges leases, hours ahead, and then hours behind that,
// while one client holds and another waits. It checks that the hold survives,
// that no other ticket is granted beside it, and that tokens grow. The test
// does not set a clock under a running member: its monotonic clock cannot be
// set, and its wall clock, which no lease depends on, can be set only together
// with the machine's.
func TestF18_F19_ClockSet(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{Members: 3})
	a, b := locks(t, s, "", holdfast.WithTTL(time.Minute)), locks(t, s, "", holdfast.WithTTL(time.Minute))
	h := lock(t, a, "n")
	got := locking(t, b, "n")
	waiting(t, a, "n", 2)
	for _, hours := range []time.Duration{3, 0} {
		for i, m := range s.Members {
			m.RestartAhead(t, hours*time.Duration(i+1)*time.Hour)
			select {
			case <-got:
				t.Fatal("it holds beside another")
			default:
			}
			if err := h.Err(); err != nil {
				t.Fatalf("after member %d came back: %v", i, err)
			}
		}
	}
	eventually(t, "the hold is released", func() bool { return h.Unlock() == nil })
	next := taken(t, got)
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestF67_TokensEnd brings the store's revisions, which are the tokens, near to
// the last token that a user may get, and then near to their own end. It checks
// that the lock is refused there, and that no token is less than one before. At
// the end, etcd itself dies.
func TestF67_TokensEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.Etcd(t, servers.EtcdOptions{Version: v})
		var last uint64
		for _, end := range []int64{driver.MaxToken, math.MaxInt64} {
			cli := client(t, s, nil)
			r, err := cli.Put(ctx, "last", "")
			if err != nil {
				t.Fatal(err)
			}
			s.Members[0].Renumber(t, r.Header.Revision, end-40)
			c := locks(t, s, "")
			refused := 0
			for i := 0; i < 60 && refused < 5; i++ {
				h, err := c.Mutex("n").Lock(within(t, time.Minute))
				if err == nil {
					if h.Token() <= last || refused > 0 {
						t.Errorf("token %x after %x, and %d refusals", h.Token(), last, refused)
					}
					last = h.Token()
					err = h.Unlock()
				}
				if e, ok := errors.AsType[*holdfast.StoreError](err); ok && driver.ClassOf(e.Err) == driver.Refused {
					refused++
				} else if err != nil {
					t.Fatalf("after %x: %v", last, err)
				}
			}
			if refused == 0 || last>>8 > driver.MaxToken || last>>8 < driver.MaxToken-40 {
				t.Errorf("near %x: %d times refused after %x", end, refused, last)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
