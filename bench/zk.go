package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func zkStage(h *host) ([]bench.Target, map[string]string) {
	s := servers.ZooKeeper(h, servers.ZooKeeperOptions{})
	m := s.Members[0]
	p := server{pids: []int{m.PID()}, count: difference(func() (counts, error) {
		var n counts
		for line := range strings.Lines(m.Ask(h, "mntr")) {
			// The commands of four letters are no packets of clients.
			if v, ok := strings.CutPrefix(line, "zk_packets_received"); ok {
				n.Requests, _ = strconv.ParseFloat(strings.TrimSpace(v), 64)
			}
		}
		return n, nil
	})}
	row := func(name, kind, role string, in func(bench.Scenario) bool) bench.Target {
		return bench.Target{Spec: bench.Spec{Name: name, Kind: kind, Server: m.Addr()},
			Role: role, Version: version("github.com/go-zookeeper/zk"), Probe: p, In: in}
	}
	first, _, _ := strings.Cut(m.Ask(h, "srvr"), "-") // what follows is a commit, or should be
	return []bench.Target{
		ours(s.URL("", ""), p),
		row("zk.Lock", "zk-lock", bench.RolePeer, nil),
		row("limit: Create and Delete", "zk-create", bench.RoleLimit, alone),
	}, map[string]string{"zookeeper": strings.TrimPrefix(first, "Zookeeper version: ")}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func dialZK(s bench.Spec) (*zk.Conn, error) {
	ttl := 10 * time.Second
	if s.TTL > 0 {
		ttl = s.TTL
	}
	c, events, err := zk.Connect([]string{s.Server}, ttl, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	return c, nil
}

func openZKLock(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c, err := dialZK(s)
	if err != nil {
		return nil, err
	}
	return &client{
		lock: func(_ context.Context, name string) (bench.Held, error) {
			l := zk.NewLock(c, "/"+name, zk.WorldACL(zk.PermAll))
			return held(l.Unlock), l.Lock() // it knows no context
		},
		end: func() error { c.Close(); return nil },
	}, nil
}

// openZKCreate makes an ephemeral node and deletes it.
func openZKCreate(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c, err := dialZK(s)
	if err != nil {
		return nil, err
	}
	return &client{
		lock: func(_ context.Context, name string) (bench.Held, error) {
			path := "/limit-" + strings.ReplaceAll(name, "/", "-")
			_, err := c.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			return held(func() error { return c.Delete(path, -1) }), err
		},
		end: func() error { c.Close(); return nil },
	}, nil
}
