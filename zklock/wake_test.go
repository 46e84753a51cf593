package zklock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// watchers asks the server which sessions watch which nodes of a queue. It
// returns the sessions, in hex, by the node's path.
func watchers(t *testing.T, s *servers.ZooKeeperServer, queue string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	path := ""
	for _, text := range strings.Split(s.Members[0].Ask(t, "wchp"), "\n") {
		switch session, ok := strings.CutPrefix(text, "\t"); {
		case !ok:
			path = strings.TrimSpace(text)
		case strings.HasPrefix(path+"/", queue+"/"):
			all[path] = append(all[path], strings.TrimSpace(session))
		}
	}
	return all
}

// TestEachWatchesOne checks which node each waiter watches besides its own. In
// a mutex's queue, each waiter watches the node before its own. In a read/write
// lock's queue, readers watch the last writer before them, and a writer the
// node before it. When the first writer goes, the readers behind it hold, and
// the other tickets send nothing.
func TestEachWatchesOne(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	for kind, c := range map[string]struct {
		limit int64
		units []int64
		waits []int // the node that each waits for; the first holds
		next  int   // number of holders when the first has gone
	}{
		"mutex":      {1, []int64{1, 1, 1, 1, 1}, []int{0, 0, 1, 2, 3}, 1},
		"read/write": {driver.RWLimit, []int64{driver.RWLimit, 1, 1, driver.RWLimit, 1}, []int{0, 0, 0, 2, 3}, 2},
	} {
		t.Run(strings.ReplaceAll(kind, "/", "-"), func(t *testing.T) {
			t.Parallel()
			name := unique("watches-one/" + kind)
			n := len(c.units)
			ds, ws, ps, ts := make([]driver.Driver, n), make([]*wire, n), make([]*pushes, n), make([]*driver.Ticket, n)
			nodes, sessions := make([]string, n), make([]string, n)
			known := map[string]bool{}
			for i := range n {
				d, w := openWire(t, s.Addrs(), 2*s.Tick)
				ds[i], ws[i], ps[i] = d, w, watch(t, d)
				ts[i] = ticket2(name, i)
				ts[i].Limit, ts[i].Units = c.limit, c.units[i]
				ts[i].TTL = 5 * time.Minute // long enough for a slow machine
				join(t, d, ts[i], []driver.State{driver.Held, driver.Waiting}[min(i, 1)])
				for _, node := range children(t, look, lineOf(name)) {
					if !known[node] {
						known[node] = true
						nodes[i] = lineOf(name) + "/" + node
					}
				}
				_, stat, err := look.Get(nodes[i])
				if err != nil {
					t.Fatal(err)
				}
				sessions[i] = fmt.Sprintf("0x%x", stat.EphemeralOwner)
			}
			// A ticket older than watchAfter watches its own node, too. Then there
			// are no more requests.
			until(t, "all watch their own nodes", func() bool {
				all := watchers(t, s, lineOf(name))
				for i, node := range nodes {
					if !strings.Contains(strings.Join(all[node], " ")+" ", sessions[i]+" ") {
						return false
					}
				}
				return true
			})
			want := map[string][]string{}
			for i := range n {
				want[nodes[i]] = append(want[nodes[i]], sessions[i])
				if i > 0 {
					want[nodes[c.waits[i]]] = append(want[nodes[c.waits[i]]], sessions[i])
				}
			}
			got := watchers(t, s, lineOf(name))
			if len(got) != len(want) {
				t.Errorf("watched are %v, want %v", got, want)
			}
			for node, by := range want {
				for _, session := range by {
					if len(got[node]) != len(by) || !strings.Contains(strings.Join(got[node], " ")+" ", session+" ") {
						t.Errorf("%s is watched by %v, want %v", node, got[node], by)
						break
					}
				}
			}
			for _, w := range ws {
				w.reset()
			}
			leave(t, ds[0], ts[0], driver.Held)
			for i := 1; i <= c.next; i++ {
				until(t, "who may hold is told", func() bool { return ps[i].state(ts[i].ID) == driver.Held })
			}
			for i := 1; i < n; i++ {
				ops, each := ws[i].ops()
				if i <= c.next && each[opChildren] > 0 {
					t.Errorf("number %d, which waited for the first alone, lists the line when it is woken", i)
				}
				if i > c.next && (ops > 0 || ps[i].state(ts[i].ID) != 0) {
					t.Errorf("number %d, whose turn it is not, asks %v and is told %v", i, each, ps[i].state(ts[i].ID))
				}
			}
			for i := 1; i < n; i++ {
				until(t, "it is its turn", func() bool { return ps[i].state(ts[i].ID) == driver.Held })
				leave(t, ds[i], ts[i], driver.Held)
			}
		})
	}
}
