package goredis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF115_HalfOpenLosesNoHold checks that no hold is lost when all connections
// of the client's pool fall silent.
//
// Covers: F115 on redis.
func TestF115_HalfOpenLosesNoHold(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	faultproxy.HalfOpen(t, faultproxy.Subject{Target: s.Addr(), OneByOne: true, Open: func(t testing.TB, addr string) driver.Driver {
		return on(t, redis.NewClient(&redis.Options{Addr: addr}))
	}}, 3*time.Second, 5*time.Second)
}

// TestF115_ClusterHalfOpenLosesNoHold checks the same for a node of a cluster.
//
// Covers: F115 on cluster.
func TestF115_ClusterHalfOpenLosesNoHold(t *testing.T) {
	t.Parallel()
	c := servers.SharedRedisCluster(t)
	target := c.Nodes[0].Addr()
	faultproxy.HalfOpen(t, faultproxy.Subject{
		Target:   target,
		OneByOne: true,
		Open: func(t testing.TB, addr string) driver.Driver {
			return on(t, redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: c.Addrs(),
				Dialer: func(ctx context.Context, network, to string) (net.Conn, error) {
					if to == target {
						to = addr
					}
					return new(net.Dialer).DialContext(ctx, network, to)
				},
			}))
		},
		Named: func(name string) string { return inFirstThird(t, c, name) },
	}, 3*time.Second, 5*time.Second)
}

// TestF115_CrowdGoesOnSoon silences all connections of a pool, those in use and some that
// are idle, and serves new ones. Requests end long before the client's time-out
// here, and find out about one connection each: a lock is free for its next holder as
// soon as some have, although many that were given up are under way.
//
// Covers: F115 on redis.
func TestF115_CrowdGoesOnSoon(t *testing.T) {
	t.Parallel()
	p := faultproxy.At(t, "127.0.0.1:0", servers.SharedRedis(t).Addr())
	c, err := holdfast.New(on(t, redis.NewClient(&redis.Options{Addr: p.Addr(), PoolSize: 200, ReadTimeout: time.Minute})),
		holdfast.WithTTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cycles := func(of int, again func() bool, cycled func()) (wait func()) {
		var running sync.WaitGroup
		for i := range of {
			running.Go(func() {
				for again() {
					h, err := c.Mutex(fmt.Sprint("crowd ", i)).Lock(t.Context())
					if err == nil {
						err = h.Unlock()
					}
					if err == nil {
						cycled()
					}
				}
			})
		}
		return running.Wait
	}
	var opened atomic.Int32
	cycles(32, func() bool { return opened.Add(1) < 32*50 }, func() {})() // opens connections
	var silentAt atomic.Pointer[time.Time]
	var over atomic.Bool
	went := make(chan time.Duration, 1)
	wait := cycles(24, func() bool { return !over.Load() }, func() {
		if at := silentAt.Load(); at != nil && time.Since(*at) > 100*time.Millisecond {
			select {
			case went <- time.Since(*at):
			default:
			}
		}
	})
	time.Sleep(100 * time.Millisecond)
	p.SilenceOpen()
	silentAt.Store(new(time.Now()))
	select {
	case took := <-went:
		t.Logf("the first lock was taken after %v", took)
	case <-time.After(6 * time.Second):
		t.Error("no lock was taken in 6 s")
	}
	over.Store(true)
	_ = c.Close() // ends the others' waits
	wait()
}
