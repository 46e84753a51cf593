package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func redisStage(h *host) ([]bench.Target, map[string]string) {
	s := servers.Redis(h, servers.RedisOptions{})
	p := redisProbe(s)
	row := func(name, kind, version, settings string, in func(bench.Scenario) bool) bench.Target {
		return bench.Target{Spec: bench.Spec{Name: name, Kind: kind, Server: s.Addr(), Settings: settings},
			Role: bench.RolePeer, Version: version, Probe: p, In: in}
	}
	limit := func(name, kind, server, settings string, in func(bench.Scenario) bool) bench.Target {
		t := row(name, kind, version("github.com/redis/rueidis"), settings, in)
		t.Role, t.Server = bench.RoleLimit, server
		return t
	}
	fresh := func(t bench.Target) bench.Target { t.Fresh = true; return t }
	users := func(name, kind string) bench.Target {
		t := row(name, kind, "", "", alone)
		t.Role = bench.RoleHoldfast
		return t
	}
	handing := func(sc bench.Scenario) bool { return strings.HasPrefix(sc.Name, "clients-") }
	some := usual("alone-1", "process-100", "process-1000", "clients-2", "clients-8-1ms", "clients-64-1ms", "crash")
	rueidis := version("github.com/redis/rueidis")
	return []bench.Target{
		ours(s.URL(""), p),
		users(onUsersRueidis, userRueidis),
		users(onUsersGoRedis, userGoRedis),
		row("redsync, defaults", "redsync", version("github.com/go-redsync/redsync/v4"), "", some),
		row("redsync, 5 ms", "redsync", version("github.com/go-redsync/redsync/v4"), "5ms", peers),
		row("redislock, 100 ms", "redislock", version("github.com/bsm/redislock"), "100ms", some),
		row(redislockBest, "redislock", version("github.com/bsm/redislock"), "5ms", peers),
		row("rueidislock, defaults", "rueidislock", rueidis, "", some),
		row(rueidislockBest, "rueidislock", rueidis, "best", nil),
		fresh(limit(sameScripts, "evalsha", captured(h, s), "", alone)),
		fresh(limit(reentrantPair, "reentrant", s.Addr(), "", alone)),
		fresh(limit(setAndDel, "setnx", s.Addr(), "", alone)),
		limit("limit: least hand-off scripts", "least", s.Addr(), "", handing),
		limit("limit: BLPOP", "blpop", s.Addr(), "", handing),
		limit("limit: PUBLISH in a ring", "publish", s.Addr(), "", handing),
	}, map[string]string{"redis": s.Info(h, "server", "redis_version")}
}

func redlockStage(n int) func(h *host) ([]bench.Target, map[string]string) {
	return func(h *host) ([]bench.Target, map[string]string) {
		var nodes []*servers.RedisServer
		var addrs []string
		for range n {
			s := servers.Redis(h, servers.RedisOptions{})
			nodes, addrs = append(nodes, s), append(addrs, s.Addr())
		}
		all := strings.Join(addrs, ",")
		settle(h, "redlock://"+all)
		p := redisProbe(nodes...)
		one := ours(nodes[0].URL(""), redisProbe(nodes[0]))
		one.Name, one.Role, one.In = "limit: Holdfast on one of the nodes", bench.RoleLimit, peers
		row := func(name, settings string) bench.Target {
			return bench.Target{Spec: bench.Spec{Name: name, Kind: "redsync", Server: all, Settings: settings},
				Role: bench.RolePeer, Version: version("github.com/go-redsync/redsync/v4"), Probe: p}
		}
		return []bench.Target{ours("redlock://"+all, p), row("redsync, defaults", ""), row("redsync, 5 ms", "5ms"), one},
			map[string]string{"redis": fmt.Sprint(n, " × ", nodes[0].Info(h, "server", "redis_version"))}
	}
}

// settle waits until nodes grant: for a TTL after their start they do not, as
// they may have forgotten who holds.
func settle(h *host, url string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := bench.OpenHoldfast(ctx, bench.Spec{Kind: bench.Holdfast, Server: url}, bench.Seat{})
	if err != nil {
		h.Fatal(err)
	}
	defer c.Close()
	for {
		l, err := c.Lock(ctx, "settled")
		if err == nil {
			err = l.Unlock()
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			h.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// redisProbe looks at Redis servers. What clients ask is counted by MONITOR,
// which tells commands of scripts from those of clients.
func redisProbe(nodes ...*servers.RedisServer) bench.Probe {
	var p server
	for _, s := range nodes {
		p.pids = append(p.pids, s.PID())
	}
	p.count = func() (func() (counts, error), error) {
		var stops []func() (counts, error)
		for _, s := range nodes {
			stop, err := monitor(s, nil)
			if err != nil {
				return nil, err
			}
			stops = append(stops, stop)
		}
		return func() (sum counts, err error) {
			for _, stop := range stops {
				c, e := stop()
				sum.Requests += c.Requests
				sum.Wakes += c.Wakes
				err = errors.Join(err, e)
			}
			return sum, err
		}, nil
	}
	return p
}

const endOfCount = "end-of-count"

// monitor counts commands and messages, and shows each command to see.
func monitor(s *servers.RedisServer, see func(line string)) (func() (counts, error), error) {
	c, err := s.Dial(context.Background())
	if err != nil {
		return nil, err
	}
	if _, err := c.Do("MONITOR"); err != nil {
		return nil, err
	}
	var n counts
	done := make(chan error, 1)
	go func() {
		defer c.Close()
		for {
			v, err := c.Receive()
			line, _ := v.(string)
			if err != nil || strings.Contains(line, endOfCount) {
				done <- err
				return
			}
			_, rest, _ := strings.Cut(line, "] ")
			verb, _, _ := strings.Cut(strings.ToUpper(rest), " ")
			if strings.Contains(verb, "PUBLISH") {
				n.Wakes++
			}
			switch {
			case strings.Contains(line, " lua] "):
			case verb == `"PING"` || verb == `"HELLO"` || verb == `"CLIENT"`:
			default:
				n.Requests++
				if see != nil {
					see(rest)
				}
			}
		}
	}()
	return func() (counts, error) {
		if _, err := s.Try("ECHO", endOfCount); err != nil {
			return n, err
		}
		err := <-done
		return n, err
	}, nil
}

// captureName is the lock whose requests are captured.
const captureName = "captured-name"

// replay is what the limit of the same scripts sends.
type replay struct {
	Addr  string
	Words [][]string // join and leave
}

// captured takes one lock and returns what Holdfast sent for it, in the form
// of the server of a Spec.
func captured(h *host, s *servers.RedisServer) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := bench.OpenHoldfast(ctx, bench.Spec{Kind: bench.Holdfast, Server: s.URL("")}, bench.Seat{})
	if err != nil {
		h.Fatal(err)
	}
	defer c.Close()
	cycle := func() {
		l, err := c.Lock(ctx, captureName)
		if err == nil {
			err = l.Unlock()
		}
		if err != nil {
			h.Fatal(err)
		}
	}
	cycle() // scripts are loaded
	r := replay{Addr: s.Addr()}
	stop, err := monitor(s, func(line string) {
		var words []string
		for line != "" {
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return
			}
			word, _ := strconv.Unquote(quoted)
			words = append(words, word)
			line = strings.TrimPrefix(line[len(quoted):], " ")
		}
		r.Words = append(r.Words, words)
	})
	if err != nil {
		h.Fatal(err)
	}
	cycle()
	if _, err := stop(); err != nil {
		h.Fatal(err)
	}
	if len(r.Words) != 2 || r.Words[0][0] != "EVALSHA" || r.Words[1][0] != "EVALSHA" {
		h.Fatalf("a lock and an unlock sent %q, not two scripts", r.Words)
	}
	b, err := json.Marshal(r)
	if err != nil {
		h.Fatal(err)
	}
	return string(b)
}
