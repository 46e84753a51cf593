package etcdlock_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestF18_F19_ClockSet: each member comes back with a monotonic clock, by which it
// judges leases, that is hours ahead, and then hours behind what it was, the
// leader's too, while one holds and another waits. The hold survives, nothing is
// granted beside it, and tokens grow. A clock that is set under a member that runs
// is not tested: nothing can set its monotonic one, and its wall clock, which no
// lease depends on, only together with the machine's.
func TestF18_F19_ClockSet(t *testing.T) {
	t.Parallel()
	s := backends.Etcd(t, backends.EtcdOptions{Members: 3})
	a, b := locks(t, s, "", holdfast.WithTTL(20*time.Second)), locks(t, s, "", holdfast.WithTTL(20*time.Second))
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

// TestF67_TokensEnd: the store's revisions, which tokens are, come to what is the
// last token of a user, and near to their own end: the lock is refused, and no token
// is less than one before. At the end etcd itself dies.
func TestF67_TokensEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v backends.EtcdVersion) {
		t.Parallel()
		s := backends.Etcd(t, backends.EtcdOptions{Version: v})
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
				h, err := c.Mutex("n").Lock(within(t, 20*time.Second))
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
