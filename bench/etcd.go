package main

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func etcdStage(h *host) ([]bench.Target, map[string]string) {
	s := servers.Etcd(h, servers.EtcdOptions{})
	p := server{pids: []int{s.Members[0].PID()}, count: difference(func() (counts, error) { return etcdCounts(s.Endpoints()[0]) })}
	row := func(name, kind, role string, in func(bench.Scenario) bool) bench.Target {
		return bench.Target{Spec: bench.Spec{Name: name, Kind: kind, Server: s.Endpoints()[0]},
			Role: role, Version: version("go.etcd.io/etcd/client/v3"), Probe: p, In: in}
	}
	return []bench.Target{
		ours(s.URL(""), p),
		row("concurrency.Mutex", "etcd-mutex", bench.RolePeer, peers),
		row("concurrency.Mutex, 1 session", "etcd-mutex-1", bench.RolePeer, idle),
		row("limit: Put and Delete", "etcd-put", bench.RoleLimit, alone),
	}, map[string]string{"etcd": string(servers.EtcdNewest)}
}

// etcdCounts reads how many messages clients have sent, in calls and on
// streams, and how many events watchers were sent.
func etcdCounts(endpoint string) (counts, error) {
	var n counts
	resp, err := http.Get(endpoint + "/metrics")
	if err != nil {
		return n, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		value, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		switch {
		case strings.HasPrefix(line, "grpc_server_msg_received_total"):
			n.Requests += value
		case strings.HasPrefix(line, "etcd_debugging_mvcc_events_total"):
			n.Wakes += value
		}
	}
	return n, lines.Err()
}

func dialEtcd(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// openEtcdMutex1 has one session for all locks: they have different names.
func openEtcdMutex1(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c, err := dialEtcd(s.Server)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(c, concurrency.WithTTL(int(s.TTL/time.Second)))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			m := concurrency.NewMutex(session, name)
			return held(func() error { return m.Unlock(context.Background()) }), m.Lock(ctx)
		},
		end: func() error { return errors.Join(session.Close(), c.Close()) },
	}, nil
}

// openEtcdMutex gives every goroutine a session of its own: two that share one
// would both hold.
func openEtcdMutex(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c, err := dialEtcd(s.Server)
	if err != nil {
		return nil, err
	}
	var opts []concurrency.SessionOption
	if s.TTL > 0 {
		opts = append(opts, concurrency.WithTTL(int(s.TTL/time.Second)))
	}
	var mu sync.Mutex
	var free, all []*concurrency.Session
	take := func() (*concurrency.Session, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(free); n > 0 {
			session := free[n-1]
			free = free[:n-1]
			return session, nil
		}
		session, err := concurrency.NewSession(c, opts...)
		if err == nil {
			all = append(all, session)
		}
		return session, err
	}
	give := func(session *concurrency.Session) {
		mu.Lock()
		defer mu.Unlock()
		free = append(free, session)
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			session, err := take()
			if err != nil {
				return nil, err
			}
			m := concurrency.NewMutex(session, name)
			if err := m.Lock(ctx); err != nil {
				give(session)
				return nil, err
			}
			return held(func() error {
				defer give(session)
				return m.Unlock(context.Background())
			}), nil
		},
		end: func() error {
			for _, session := range all {
				_ = session.Close() // its lease ends it
			}
			return c.Close()
		},
	}, nil
}

// openEtcdPut writes and deletes a key.
func openEtcdPut(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c, err := dialEtcd(s.Server)
	if err != nil {
		return nil, err
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			_, err := c.Put(ctx, name, "")
			return held(func() error {
				r, err := c.Delete(context.Background(), name)
				if err == nil && r.Deleted != 1 {
					err = errors.New("nothing was deleted")
				}
				return err
			}), err
		},
		end: c.Close,
	}, nil
}
