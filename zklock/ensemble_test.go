package zklock_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestEnsemble kills and restarts members of an ensemble, the leader among
// them, under clients that count: the count is exact, no hold is lost, and
// without a quorum there is one clear error.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	s := backends.ZooKeeper(t, backends.ZooKeeperOptions{Members: 3})
	url := s.URL("", "")
	const clients = 4
	var cs []*holdfast.Client
	for range clients {
		cs = append(cs, newClient(t, url, holdfast.WithTTL(20*time.Second)))
	}
	// One hold lives through everything.
	long, err := cs[0].Mutex("long").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	n, inside, turns, last := 0, 0, 0, uint64(0)
	var mu sync.Mutex // of turns only: the lock has to order the rest
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
					// A store without a leader may say so, and say no more.
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

	// No quorum.
	s.Members[0].Kill()
	s.Members[1].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if h, err := cs[1].Mutex("no quorum").Lock(ctx); err == nil {
		t.Errorf("locked without a quorum: %v", h.Name())
	} else {
		t.Logf("without a quorum, Lock: %v", err)
	}
	if _, err := openErr(t, url+"&dial_timeout=2s"); err == nil {
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
