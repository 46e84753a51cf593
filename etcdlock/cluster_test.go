package etcdlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leader returns the index of the member that leads.
func leader(t testing.TB, s *servers.EtcdServer, cli *clientv3.Client) int {
	t.Helper()
	found := -1
	eventually(t, "there is a leader", func() bool {
		for i, e := range s.Endpoints() {
			c, cancel := context.WithTimeout(ctx, time.Second)
			st, err := cli.Status(c, e)
			cancel()
			if err == nil && st.Leader == st.Header.MemberId {
				found = i
				return true
			}
		}
		return false
	})
	return found
}

// turns lets clients take turns on a lock until stop is called; count returns
// the number of turns so far.
func turns(t *testing.T, cs []*holdfast.Client, name string) (count func() int, stop func()) {
	until, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	n, inside := 0, 0
	var last uint64
	var mu sync.Mutex
	for _, c := range cs {
		m := c.Mutex(name)
		wg.Go(func() {
			for until.Err() == nil {
				// A member that is killed takes requests with it. The test judges
				// only the holds.
				h, err := m.Lock(within(t, 2*time.Minute))
				if err != nil {
					if errors.Is(err, holdfast.ErrClosed) {
						t.Error(err)
						return
					}
					time.Sleep(10 * time.Millisecond)
					continue
				}
				mu.Lock()
				if inside++; inside != 1 && h.Err() == nil {
					t.Errorf("%d inside", inside)
				}
				if h.Token() <= last {
					t.Errorf("token %d after %d", h.Token(), last)
				}
				last = h.Token()
				n++
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
				mu.Lock()
				inside--
				mu.Unlock()
				h.Unlock()
			}
		})
	}
	count = func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
	return count, func() {
		end()
		wg.Wait()
	}
}

// TestF72_F73_MembersComeAndGo kills and restarts one member of a cluster of
// three after the other, the leader first. It checks that a hold with a TTL
// longer than an election survives, and that clients go on taking turns, one at
// a time.
func TestF72_F73_MembersComeAndGo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.Etcd(t, servers.EtcdOptions{Version: v, Members: 3})
		cli := client(t, s, nil)
		keeper := locks(t, s, "", holdfast.WithTTL(40*time.Second))
		h := lock(t, keeper, "kept")
		cs := []*holdfast.Client{
			locks(t, s, "", holdfast.WithTTL(12*time.Second)), locks(t, s, "", holdfast.WithTTL(12*time.Second)), locks(t, s, "", holdfast.WithTTL(12*time.Second)),
		}
		count, stop := turns(t, cs, "turns")
		goOn := func() {
			before := count()
			eventually(t, "turns go on", func() bool { return count() > before })
		}
		goOn()
		first := leader(t, s, cli)
		for i := range 3 {
			m := s.Members[(first+i)%3]
			m.Kill()
			time.Sleep(500 * time.Millisecond)
			m.Restart(t)
			leader(t, s, cli)
			goOn()
		}
		stop()
		t.Logf("%d turns", count())
		if err := h.Err(); err != nil {
			t.Errorf("the hold: %v", err)
		}
		eventually(t, "the hold is released", func() bool { return h.Unlock() == nil || h.Err() != nil })
		after := lock(t, cs[0], "kept", holdfast.WithTTL(40*time.Second))
		if after.Token() <= h.Token() {
			t.Errorf("token %d after %d", after.Token(), h.Token())
		}
		after.Unlock()
	})
}

// TestF72_FrozenLeader freezes the leader. It checks that the other two members
// elect another one, and that a hold with a longer TTL than that takes
// survives.
func TestF72_FrozenLeader(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{Members: 3})
	cli := client(t, s, nil)
	a, b := locks(t, s, "", holdfast.WithTTL(30*time.Second)), locks(t, s, "", holdfast.WithTTL(30*time.Second))
	h := lock(t, a, "n")
	got := locking(t, b, "n")
	waiting(t, a, "n", 2)
	frozen := s.Members[leader(t, s, cli)]
	frozen.Pause(t)
	time.Sleep(6 * time.Second)
	if err := h.Err(); err != nil {
		t.Errorf("the hold: %v", err)
	}
	eventually(t, "the hold is released", func() bool { return h.Unlock() == nil || h.Err() != nil })
	bh := taken(t, got)
	if bh.Token() <= h.Token() {
		t.Errorf("token %d after %d", bh.Token(), h.Token())
	}
	frozen.Resume(t)
	eventually(t, "the next hold is released", func() bool { return bh.Unlock() == nil || bh.Err() != nil })
}
