package redlock

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/redisrights"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock"
)

// redisServers are independent Redis servers of one test.
type redisServers []*servers.RedisServer

func start(t testing.TB, n int) redisServers {
	t.Helper()
	var ss redisServers
	for range n {
		ss = append(ss, servers.Redis(t, servers.RedisOptions{}))
	}
	return ss
}

// target returns an argument for openTarget.
func (ss redisServers) target(query string) string {
	urls := make([]string, len(ss))
	for i, s := range ss {
		urls[i] = s.URL(query)
	}
	return strings.Join(urls, " ")
}

func (ss redisServers) open(t drivertest.T, query string) *Driver {
	t.Helper()
	d, err := openTarget(ss.target(query))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return d.(*Driver)
}

func (ss redisServers) harness(t *testing.T) drivertest.Harness {
	return drivertest.Harness{
		LateViews: true,
		Open:      func(dt drivertest.T) driver.Driver { return ss.open(dt, "timeout=10s") },
		TTL:       4 * time.Second, // a node's deadline is a tenth of it, and the machine may be busy
		Waiters:   200,
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
		Rights: ss.rights(t),
	}
}

// rights describes users of all servers.
func (ss redisServers) rights(t *testing.T) *drivertest.Rights {
	rules := redisrights.Documented(t, "../redislock/docs.go", "", redislock.DefaultPrefix)
	rights := redisrights.Users(t, rules, ss, func(user *url.Userinfo) (driver.Driver, error) {
		return openTarget(strings.ReplaceAll(ss.target(""), "://", "://"+user.String()+"@"))
	})
	rights.Majority = true
	return rights
}

// TestRedisConformance runs the suite on Redis servers, apart from the cases
// that depend on order. RedLock does not promise order, but keeps it while all
// nodes answer in time, as they do in memory, where these cases run.
func TestRedisConformance(t *testing.T) {
	h := start(t, 3).harness(t)
	const (
		order = "a node of a busy machine answers late, and then the line need not be kept"
		late  = "a node that answers late is left in the background, and shows the ticket until then"
	)
	h.LeaveOut = map[string]string{
		"inspect":                 order,
		"replaces":                order,
		"leave-frees-no-stranger": order,
		"hammer-cancel":           late,
		"nasty-names":             late,
	}
	drivertest.Run(t, h)
}

func TestRedisLocks(t *testing.T) {
	t.Parallel()
	drivertest.RunLocks(t, start(t, 5).harness(t))
}

func TestRedisProcesses(t *testing.T) {
	t.Parallel()
	multiproc.Run(t, multiproc.Store{Target: start(t, 3).target(""), TTL: 2 * time.Second})
}

// TestRedisThreeOfSevenDown checks seven nodes, three of which are down.
func TestRedisThreeOfSevenDown(t *testing.T) {
	t.Parallel()
	ss := start(t, 7)
	d := ss.open(t, "")
	c := clientOf(t, d, 20*time.Second)
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

// TestF42_RedisMinorityChangesNothing stops, kills, slows down, and restarts
// without its data under the guard, a minority of real servers, while clients
// take turns.
//
// Covers: F41, F26.
func TestF42_RedisMinorityChangesNothing(t *testing.T) {
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
	for i, s := range ss[:2] { // one after the other
		s.Pause(t)
		progress("one is stopped")
		s.Resume(t)
		progress("it goes on")
		s.RestartEmpty(t)
		progress("one has lost its data")
		// A second server may fail only once this one votes again.
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

// TestF22_RedisStalledAddsNothing checks that a server that is stopped adds
// nothing to a lock and its release.
func TestF22_RedisStalledAddsNothing(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	ss := start(t, 3)
	c := clientOf(t, ss.open(t, ""), ttl)
	ss[1].Pause(t)
	defer ss[1].Resume(t)
	const n, tries = 100, 5 // on a machine that does much else, many locks take longer
	for try := 1; ; try++ {
		quick := 0
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
		if quick >= n/2 {
			return
		}
		if try == tries {
			t.Fatalf("only %d of %d locks took less than a quarter of a node's deadline", quick, n)
		}
	}
}

// TestF44_DatabasesOfOneServer checks that two databases of one server are
// refused as nodes: they are two stores that fail as one.
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
