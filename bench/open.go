package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

type counts = bench.Counts

// opens are the implementations by the kind of their Spec.
var opens = map[string]bench.Open{
	bench.Holdfast: bench.OpenHoldfast,

	"redsync":     openRedsync,
	"redislock":   openRedislock,
	"rueidislock": openRueidislock,
	userRueidis:   openOnRueidis,
	userGoRedis:   openOnGoRedis,
	"evalsha":     openEvalsha,
	"reentrant":   openReentrant,
	"setnx":       openSetNX,
	"blpop":       openBLPOP,
	"publish":     openPublish,
	"least":       openLeast,

	"etcd-mutex":   openEtcdMutex,
	"etcd-mutex-1": openEtcdMutex1,
	"etcd-put":     openEtcdPut,

	"zk-lock":   openZKLock,
	"zk-create": openZKCreate,

	"pg-advisory": openAdvisory,
	"pglock":      openPGLock,
	"pg-update":   openPGUpdate,

	"get-lock":     openGetLock,
	"mysql-update": openMySQLUpdate,
}

func open(ctx context.Context, s bench.Spec, seat bench.Seat) (bench.Client, error) {
	f := opens[s.Kind]
	if f == nil {
		return nil, fmt.Errorf("there is no implementation %q", s.Kind)
	}
	return f(ctx, s, seat)
}

// client is a bench.Client of two functions.
type client struct {
	lock func(ctx context.Context, name string) (bench.Held, error)
	end  func() error
}

func (c *client) Lock(ctx context.Context, name string) (bench.Held, error) { return c.lock(ctx, name) }

func (c *client) Close() error { return c.end() }

// held is a bench.Held of a function.
type held func() error

func (h held) Unlock() error { return h() }

// alone says that a scenario has nobody wait: the others need a lock that
// excludes.
func alone(s bench.Scenario) bool { return strings.HasPrefix(s.Name, "alone-") }

// peers are those that can be asked to wait, but do not renew thousands.
func peers(s bench.Scenario) bool { return s.Kind != bench.Idle }

// idle is where many locks are held.
func idle(s bench.Scenario) bool { return s.Kind == bench.Idle }

// usual leaves the defaults of a peer out of scenarios that its best settings
// are in: they poll slowly, and each run takes as long.
func usual(names ...string) func(bench.Scenario) bool {
	return func(s bench.Scenario) bool {
		for _, n := range names {
			if s.Name == n {
				return true
			}
		}
		return false
	}
}

// ours is Holdfast's own row.
func ours(url string, p bench.Probe) bench.Target {
	return bench.Target{Spec: bench.Spec{Name: "holdfast", Kind: bench.Holdfast, Server: url}, Role: bench.RoleHoldfast, Probe: p}
}

// patience is how long a lock may be waited for by peers that want a limit.
const patience = time.Minute
