package zklock_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// TestF90_LockOnEnsemble kills and restarts members of an ensemble, the leader among
// them, while clients count under a lock. It checks that the count is exact,
// that no hold is lost, and that without a quorum there is one clear error.
func TestF90_LockOnEnsemble(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Members: 3})
	url := s.URL("", "")
	const clients = 4
	var cs []*holdfast.Client
	for range clients {
		cs = append(cs, newClient(t, url, holdfast.WithTTL(20*time.Second)))
	}
	// One hold lasts throughout the test.
	long, err := cs[0].Mutex("long").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	n, inside, turns, last := 0, 0, 0, uint64(0)
	var mu sync.Mutex // guards turns only: the lock has to order the rest
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := c.Do(context.Background(), "counter", func(ctx context.Context) error {
					if inside++; inside != 1 {
						t.Errorf("%d inside", inside)
					}
					if token := holdfast.Token(ctx, "counter"); token <= last {
						t.Errorf("token %d after %d", token, last)
					} else {
						last = token
					}
					n++
					inside--
					return nil
				})
				mu.Lock()
				turns++
				if err != nil {
					// A store without a leader may return that error, and no
					// other.
					t.Logf("turn: %v", err)
					if !strings.Contains(err.Error(), "release") {
						turns--
					}
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	done := func() int { mu.Lock(); defer mu.Unlock(); return turns }
	goOn := func() {
		t.Helper()
		from := done()
		until(t, "the clients go on", func() bool { return done() >= from+20 })
	}
	goOn()
	leader, follower := -1, -1
	for i, m := range s.Members {
		if m.Leads(t) {
			leader = i
		} else {
			follower = i
		}
	}
	for _, i := range []int{follower, leader} {
		s.Members[i].Kill()
		goOn()
		s.Members[i].Restart(t)
		goOn()
	}
	close(stop)
	wg.Wait()
	if n != turns {
		t.Errorf("counted to %d in %d turns", n, turns)
	}
	if err := long.Err(); err != nil {
		t.Errorf("a hold of 20 s was lost: %v", err)
	}

	// There is no quorum now.
	s.Members[0].Kill()
	s.Members[1].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if h, err := cs[1].Mutex("no quorum").Lock(ctx); err == nil {
		t.Errorf("locked without a quorum: %v", h.Name())
	} else {
		t.Logf("without a quorum, Lock: %v", err)
	}
	if _, err := openErr(t, s.URL("", "dial_timeout=8s")); err == nil {
		t.Error("opened without a quorum")
	} else if class := driver.ClassOf(err); class != driver.Unavailable || !strings.Contains(err.Error(), "quorum") {
		t.Errorf("without a quorum, Open: %v (%v)", err, class)
	}
	var both sync.WaitGroup
	for _, m := range s.Members[:2] {
		both.Go(func() { m.Restart(t) })
	}
	both.Wait()
	until(t, "the hold is released", func() bool { return long.Unlock() == nil || long.Err() != nil })
}

// TestF84_LaggingFollower loses the answer to a create, and repeats the Join
// over a follower that was frozen meanwhile and has not seen the node. It
// checks that the Join finds the node and does not make a second one.
func TestF84_LaggingFollower(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Members: 3})
	leader, follower := s.Members[0], s.Members[1]
	for _, m := range s.Members {
		if m.Leads(t) {
			leader = m
		} else {
			follower = m
		}
	}
	var to atomic.Value
	to.Store(leader.Addr())
	w := newWire()
	d, err := zklock.Connect(t.Context(), []string{leader.Addr()}, &zklock.Options{Tick: s.Tick,
		Dial: func(network, _ string, timeout time.Duration) (net.Conn, error) {
			return w.Dial(network, to.Load().(string), timeout)
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	look := raw(t, leader.Addr())
	const name = "lagging"
	for i := range 3 {
		// The connection in use may just have been broken.
		warm := ticket2(name, 10+i)
		joinUntil(t, d, warm)
		leaveUntil(t, d, warm)
		to.Store(follower.Addr()) // for the next connection
		follower.Pause(t)
		var asked []int32
		cutOnce := true
		w.on(func(op int32) cut {
			switch {
			case op == opMulti && cutOnce:
				cutOnce = false
				return cutAfter
			case !cutOnce && (op == opMulti || op == opSync || op == opChildren):
				asked = append(asked, op)
			}
			return pass
		})
		tk := ticket2(name, 20+i)
		if p, err := d.Join(t.Context(), tk, true); err == nil {
			t.Fatalf("Join answers %v", p.State)
		}
		until(t, "the node is there", func() bool { return len(children(t, look, lineOf(name))) == 1 })
		mine := children(t, look, lineOf(name))[0]
		follower.Resume(t)
		if p := joinUntil(t, d, tk); p.State != driver.Held {
			t.Fatalf("joined as %v", p.State)
		}
		if got := children(t, look, lineOf(name)); len(got) != 1 || got[0] != mine {
			t.Errorf("the line has %q, want %q", got, mine)
		}
		w.on(nil)
		// After a sync a follower has everything that was written before.
		for _, op := range asked {
			if op == opSync {
				break
			}
			t.Errorf("before a sync it asks with %d", op)
		}
		leave(t, d, tk, driver.Held)
		to.Store(leader.Addr())
		w.breakAll()
	}
}
