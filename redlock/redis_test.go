package redlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/drivertest/locktest"
	"github.com/holdfast-go/holdfast/drivertest/procs"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// servers are independent Redis servers of one test.
type servers []*backends.RedisServer

func start(t testing.TB, n int) servers {
	t.Helper()
	var ss servers
	for range n {
		ss = append(ss, backends.Redis(t, backends.RedisOptions{}))
	}
	return ss
}

// target is what openTarget takes.
func (ss servers) target(query string) string {
	urls := make([]string, len(ss))
	for i, s := range ss {
		urls[i] = s.URL(query)
	}
	return strings.Join(urls, " ")
}

func (ss servers) open(t drivertest.T, query string) *Driver {
	t.Helper()
	d, err := openTarget(ss.target(query))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return d.(*Driver)
}

func (ss servers) harness(t *testing.T) drivertest.Harness {
	return drivertest.Harness{
		Open: func(dt drivertest.T) driver.Driver { return ss.open(dt, "timeout=10s") },
		TTL:  4 * time.Second, // a node's deadline is a tenth of it, on machines that are busy
		Many: 200,
		Pause: func(drivertest.T) func() {
			for _, s := range ss {
				s.Pause(t)
			}
			return func() {
				for _, s := range ss {
					s.Resume(t)
				}
			}
		},
		Restart: func(drivertest.T) {
			for _, s := range ss {
				s.Restart(t)
			}
		},
		LoseData: func(drivertest.T) {
			for _, s := range ss {
				s.Do(t, "FLUSHALL")
			}
		},
		Connections: func(drivertest.T) int {
			n := 0
			for _, s := range ss {
				one, _ := strconv.Atoi(s.Info(t, "clients", "connected_clients"))
				n += one
			}
			return n
		},
	}
}

// Order is promised nowhere, but kept while all nodes answer in time, as they do
// in memory, where the cases that lean on it are run.
func TestRedisConformance(t *testing.T) {
	h := start(t, 3).harness(t)
	const order = "a node of a busy machine answers late, and then the line need not be kept"
	h.LeaveOut = map[string]string{
		"replaces":                order,
		"leave-frees-no-stranger": order,
		"hammer-cancel":           "a node that answers late is left in the background, and shows the ticket until then",
	}
	drivertest.Run(t, h)
}

func TestRedisLocks(t *testing.T) {
	t.Parallel()
	locktest.Run(t, start(t, 5).harness(t))
}

func TestRedisProcesses(t *testing.T) {
	t.Parallel()
	procs.Run(t, procs.Store{Target: start(t, 3).target(""), TTL: 2 * time.Second})
}

// Seven nodes, three of which are down.
func TestRedisSeven(t *testing.T) {
	t.Parallel()
	ss := start(t, 7)
	d := ss.open(t, "")
	c := clientOf(t, d, 5*time.Second)
	for _, s := range ss[2:5] {
		s.Crash(t)
	}
	var last uint64
	for range 20 {
		h, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if h.Token() <= last {
			t.Errorf("token %d after %d", h.Token(), last)
		}
		last = h.Token()
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// A minority of real servers is stopped, killed, restarted without its data
// under the guard, and slow, while clients take turns.
//
// Covers: F41, F26.
func TestF42_RedisMinority(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	ss := start(t, 3)
	var r record
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 3 {
		c := clientOf(t, ss.open(t, "restart_guard=on"), ttl)
		wg.Go(func() {
			for ctx.Err() == nil {
				r.turn(t, ctx, fmt.Sprint("client ", i), c, "n", 2*time.Millisecond)
			}
		})
	}
	progress := func(what string) {
		t.Helper()
		r.mu.Lock()
		before := r.count
		r.mu.Unlock()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			r.mu.Lock()
			n := r.count - before
			r.mu.Unlock()
			if n >= 20 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d turns in a minute", what, n)
			}
		}
	}
	progress("guarded at first")
	for i, s := range ss[:2] { // the second one after the first
		s.Pause(t)
		progress("one is stopped")
		s.Resume(t)
		progress("it goes on")
		s.RestartEmpty(t)
		progress("one has lost its data")
		// A second one may fail only when this one votes again.
		time.Sleep(ttl + 2*time.Second)
		if i == 0 {
			s.Crash(t)
			progress("one is killed")
			s.Restart(t)
			time.Sleep(ttl + 2*time.Second)
		}
	}
	cancel()
	wg.Wait()
}

// A server that is stopped adds nothing to a lock and its release.
func TestF22_RedisStalled(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	ss := start(t, 3)
	c := clientOf(t, ss.open(t, ""), ttl)
	ss[1].Pause(t)
	defer ss[1].Resume(t)
	var quick int
	const n = 100
	for range n {
		begun := time.Now()
		h, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(); err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) < 250*time.Millisecond {
			quick++
		}
	}
	if quick < n/2 {
		t.Errorf("only %d of %d locks took less than a quarter of a node's deadline", quick, n)
	}
}

// Two databases of one server are two stores that fail as one.
//
// Covers: F44.
func TestF44_DatabasesOfOneServer(t *testing.T) {
	t.Parallel()
	ss := start(t, 2)
	urls := []string{ss[0].URL(""), ss[1].URL(""), ss[0].URL("") + "/1?prefix=other:"}
	d, err := openTarget(strings.Join(urls, " "))
	if err == nil {
		d.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "nodes 1 and 3 are one and the same server") {
		t.Errorf("%v", err)
	}
}
