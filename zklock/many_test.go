package zklock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// TestLocks runs the suite of the lock as its users see it.
func TestLocks(t *testing.T) {
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{}) // a server of its own: the suite pauses it
	drivertest.RunLocks(t, drivertest.Harness{
		Open:  func(t drivertest.T) driver.Driver { return open(t, s.URL("", "")) },
		TTL:   4 * time.Second,
		Pause: pausing(t, s.Members[0]),
	})
}

// TestLocksAcrossProcesses kills and pauses real processes, and checks that the next
// holder comes within the TTL, 5 %, 250 ms and the store's granularity, which
// is 3 ticks of the tick that the URL gives.
func TestLocksAcrossProcesses(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	multiproc.Run(t, multiproc.Store{Target: s.URL("", ""), TTL: 3 * time.Second, Slack: 6*s.Tick + 500*time.Millisecond})
}

// Test200Clients is the test of the founding texts: 200 goroutines, each with a
// client of its own, count to 200 exactly, with tokens in order.
func Test200Clients(t *testing.T) {
	addrs := servers.SharedZooKeeper(t).Addrs()
	name := unique("200-clients")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n, inside, last := 0, 0, uint64(0)
	var wg sync.WaitGroup
	opening := make(chan struct{}, 16)
	for range 200 {
		wg.Go(func() {
			opening <- struct{}{}
			d, err := zklock.Connect(ctx, addrs, &zklock.Options{Tick: 2 * time.Second})
			<-opening
			if err != nil {
				t.Error(err)
				return
			}
			c, err := holdfast.New(d, holdfast.WithTTL(30*time.Second))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			err = c.Do(ctx, name, func(ctx context.Context) error {
				if inside++; inside != 1 {
					t.Errorf("%d inside", inside)
				}
				if token := holdfast.Token(ctx, name); token <= last {
					t.Errorf("token %d after %d", token, last)
				} else {
					last = token
				}
				n++
				inside--
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n != 200 {
		t.Errorf("counted to %d", n)
	}
	if left := children(t, raw(t, addrs...), lineOf(name)); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}
