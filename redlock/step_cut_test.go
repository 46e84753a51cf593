package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
)

// TestF1_EveryStepCut cuts every message to one of three nodes, in every
// request: to the node that is the queue's home, and to one that is not. The
// other two nodes go on.
//
// Covers: F1, F2, F3, F4.
func TestF1_EveryStepCut(t *testing.T) {
	t.Parallel()
	ss := start(t, 3)
	for home, what := range []string{"home", "other"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			faultproxy.EveryStep(t, faultproxy.Subject{
				Target: ss[0].Addr(), TTL: time.Minute, Settles: true,
				MinCuts: []int64{54, 27}[home],
				Open: func(t testing.TB, addr string) driver.Driver {
					d, err := openTarget(strings.Replace(ss.target("prefix=cut-"+what), ss[0].Addr(), addr, 1))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = d.Close() })
					return d
				},
				Named: func(name string) string {
					for i := 0; ; i++ {
						if named := fmt.Sprint(name, " ", i); homeAmong(3, named) == home {
							return named
						}
					}
				},
				Ready: whole,
			})
		})
	}
}

// homeAmong returns the first home of a name.
func homeAmong(n int, name string) int {
	return (&nodeSet{all: make([]*node, n)}).homes(name)[0]
}

var readies atomic.Int64

// whole returns an error unless a driver has all its nodes. A node that was
// slow counts as slow until it has answered a vote quickly.
func whole(ctx context.Context, d driver.Driver, name string) error {
	k := &driver.Ticket{
		ID:   fmt.Sprintf("00000000-0000-4000-8000-%012d:2", readies.Add(1)),
		Name: name + " ready", Units: 1, Limit: 1, TTL: time.Minute,
	}
	if _, err := d.Join(ctx, k, false); err != nil {
		return err
	}
	ps, err := d.Leave(ctx, []driver.Ref{{Ticket: k, State: driver.Held}})
	if err == nil {
		err = ps[0].Err
	}
	for _, n := range d.(*Driver).nodes.all {
		if !n.responsive() || !n.watched.Load() {
			err = errors.New("a node is not back")
		}
	}
	if err != nil {
		time.Sleep(time.Millisecond)
	}
	return err
}

// TestF115_HalfOpenLosesNoHold checks that connections that fall silent lose no
// hold.
//
// Covers: F115 on redlock.
func TestF115_HalfOpenLosesNoHold(t *testing.T) {
	t.Parallel()
	ss := start(t, 3)
	faultproxy.HalfOpen(t, faultproxy.Subject{Target: ss[0].Addr(), Open: func(t testing.TB, addr string) driver.Driver {
		d, err := openTarget(strings.Replace(ss.target("prefix=half"), ss[0].Addr(), addr, 1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}}, 3*time.Second, 5*time.Second)
}
