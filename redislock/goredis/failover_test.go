package goredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock"
)

// TestContendedLocksSurviveFailover kills a primary while locks in its slots,
// and others, are contended: every Lock returns, and tokens grow.
func TestContendedLocksSurviveFailover(t *testing.T) {
	t.Parallel()
	cluster := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: 3 * time.Second})
	sentinels := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{DownAfter: 3000})
	var addrs []string
	for _, s := range sentinels.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	for what, c := range map[string]struct {
		open func() redis.UniversalClient
		kill func()
	}{
		"cluster": {
			func() redis.UniversalClient { return clusterOf(t, cluster, time.Second) },
			func() { cluster.Nodes[0].Crash(t) },
		},
		"sentinel": {
			func() redis.UniversalClient {
				c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: servers.SentinelMaster, SentinelAddrs: addrs, ReadTimeout: time.Second})
				t.Cleanup(func() { c.Close() })
				return c
			},
			func() { sentinels.Nodes[0].Crash(t) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			var clients []*holdfast.Client
			for range 2 {
				d, err := New(c.open(), nil)
				if err != nil {
					t.Fatal(err)
				}
				l, err := holdfast.New(d, holdfast.WithTTL(3*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				clients = append(clients, l)
			}
			var mu sync.Mutex
			last := make(map[string]uint64)
			turns := make(map[string]int)
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for i := range 6 {
				name := fmt.Sprint("n", i)
				for _, l := range clients {
					wg.Go(func() {
						for ctx.Err() == nil {
							wait, done := context.WithTimeout(context.Background(), patience)
							hold, err := l.Mutex(name).Lock(wait)
							if wait.Err() != nil {
								t.Errorf("%s: a Lock hangs", name)
							}
							done()
							if err != nil {
								continue
							}
							mu.Lock()
							if hold.Token() <= last[name] && hold.Err() == nil {
								t.Errorf("%s: token %d after %d", name, hold.Token(), last[name])
							}
							last[name] = max(last[name], hold.Token())
							turns[name]++
							mu.Unlock()
							_ = hold.Unlock()
						}
					})
				}
			}
			progress := func(what string) {
				mu.Lock()
				before := make(map[string]int)
				for name, n := range turns {
					before[name] = n
				}
				mu.Unlock()
				for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
					mu.Lock()
					done := true
					for i := range 6 {
						name := fmt.Sprint("n", i)
						done = done && turns[name] >= before[name]+20
					}
					mu.Unlock()
					if done {
						return
					}
					if time.Now().After(end) {
						t.Fatalf("%s, not every lock is taken: %v, %v", what, before, turns)
					}
				}
			}
			defer wg.Wait()
			defer cancel()
			progress("at first")
			if what == "cluster" {
				confirmed(t, c.open(), cluster)
			}
			c.kill()
			progress("after the failover")
		})
	}
}

// confirmed checks that a grant is shown once replicas have it, and given back
// if they do not, both in the answer to a join and after a wait.
func confirmed(t *testing.T, client redis.UniversalClient, cluster *servers.RedisCluster) {
	t.Helper()
	d, err := New(client, &redislock.Options{MinReplicas: 1, ConfirmWithin: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l, err := holdfast.New(d, holdfast.WithTTL(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := l.Mutex("confirmed")
	lock := func(within time.Duration) (*holdfast.Hold, error) {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		return m.Lock(ctx)
	}
	for range 10 {
		hold, err := lock(patience)
		if err != nil {
			t.Fatalf("with replicas: %v", err)
		}
		if err := hold.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range cluster.Nodes[:3] {
		r := cluster.Replica(p)
		r.Pause(t)
		defer r.Resume(t)
		p.Do(t, "CLIENT", "KILL", "TYPE", "replica")
	}
	if hold, err := lock(2 * time.Second); err == nil {
		t.Errorf("without a replica, token %d is granted", hold.Token())
	} else if !errors.Is(err, redislock.ErrUnconfirmed) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a replica: %v", err)
	}
	line, err := d.Inspect(context.Background(), "confirmed")
	if err != nil || len(line.Tickets) != 0 {
		t.Errorf("what was not confirmed stays: %+v, %v", line.Tickets, err)
	}
}
