package goredis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// library is a client for one server as a [client.Library].
type library struct{ c *redis.Client }

// In implements [client.Library].
func (l library) In(life client.Life) client.Client { return &single{l.c, client.NewDetached(life)} }

// single is a client for one server, as one driver has it.
type single struct {
	c     *redis.Client
	calls *client.Detached
}

// Eval implements [client.Client].
func (s *single) Eval(ctx context.Context, r wire.Request) (wire.Reply, error) {
	cmd := newOnce(r.Words())
	return s.calls.Call(ctx, func(ctx context.Context) (wire.Reply, error) {
		_ = s.c.Process(ctx, cmd) // cmd has the error
		return answer(cmd.Result())
	})
}

// Heal implements [client.Client]. The pool looks after its connections, so Heal
// and the following do nothing.
func (*single) Heal() {}

// CloseSilent implements [client.Client].
func (*single) CloseSilent(time.Duration) {}

// Cut implements [client.Client].
func (*single) Cut() {}

// Close implements [client.Client].
func (*single) Close() {}

// once is a command that the client must not repeat when its answer was lost:
// a repeated Leave would find nothing, and a release would be reported as a
// loss. The core repeats commands, and takes the repetition into account.
type once struct{ *redis.Cmd }

func newOnce(words []string) once { return once{redis.NewCmd(bg, list(words)...)} }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// Conn implements [client.Client].
func (s *single) Conn() client.Conn { return &conn{c: redis.NewClient(oneConnOptions(s.c.Options()))} }

// oneConnOptions returns the options of a client that has one connection and
// otherwise resembles the user's. A connection that replaces a silent one is
// made anew: the client's own pool could provide another silent one.
func oneConnOptions(o *redis.Options) *redis.Options {
	one := *o
	one.PoolSize, one.MinIdleConns, one.MaxIdleConns, one.MaxActiveConns = 1, 0, 1, 1
	one.ClientSideCache, one.ClientSideCacheConfig = nil, nil
	// go-redis 9.23 writes to the configuration of the user's client, without a
	// lock that others could take, when it makes a connection. The driver makes a
	// connection anew by itself.
	one.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// The options have been through the client's defaults, where 0 means none;
	// in new options, 0 means the default.
	for _, t := range []*time.Duration{&one.ReadTimeout, &one.WriteTimeout} {
		switch *t {
		case 0:
			*t = -1
		case -1:
			*t = -2
		}
	}
	if one.MaxRetries == 0 {
		one.MaxRetries = -1
	}
	return &one
}

// Listen implements [client.Client].
func (s *single) Listen(sharded bool, onMessage func(message string), onDropped func(channel string)) client.Subscriber {
	return newSubscriber(s.c, sharded, onMessage, onDropped)
}

// conn is one connection as a [client.Conn]: a client that has no other.
//
// Under mu a command is sent and answered; no mutex of this package is taken.
type conn struct {
	mu sync.Mutex // one command, or one pipeline, at a time
	c  *redis.Client
}

// Do implements [client.Conn].
func (c *conn) Do(words ...string) (wire.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd := newOnce(words)
	_ = c.c.Process(bg, cmd)
	return ownAnswer(answer(cmd.Result()))
}

// ownAnswer converts the answer on a connection of the driver's own: that this
// connection was closed does not mean that the user's client was.
func ownAnswer(r wire.Reply, err error) (wire.Reply, error) {
	if errors.Is(err, client.ErrClosed) {
		err = errLost
	}
	return r, err
}

// Pipe implements [client.Conn].
func (c *conn) Pipe(commands [][]string) []wire.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	replies := make([]wire.Reply, len(commands))
	p := c.c.Pipeline()
	cmds := make([]once, len(commands))
	for i, words := range commands {
		cmds[i] = newOnce(words)
		_ = p.Process(bg, cmds[i])
	}
	_, _ = p.Exec(bg) // each command has its own error
	for i, cmd := range cmds {
		r, err := ownAnswer(answer(cmd.Result()))
		if err != nil {
			r = wire.Failed(err)
		}
		replies[i] = r
	}
	return replies
}

// Close implements [client.Conn]. A command that waits ends with an error.
func (c *conn) Close() { _ = c.c.Close() }

func list(words []string) []any {
	l := make([]any, len(words))
	for i, w := range words {
		l[i] = w
	}
	return l
}

// answer converts the result of a command.
func answer(v any, err error) (wire.Reply, error) {
	switch {
	case err == nil:
		return reply(v), nil
	case errors.Is(err, redis.Nil):
		return wire.Reply{}, nil
	case errors.Is(err, redis.ErrClosed):
		return wire.Reply{}, client.ErrClosed
	}
	return wire.Reply{}, failure(err)
}

// failure distinguishes the server's errors from others.
func failure(err error) error {
	if re, ok := errors.AsType[redis.Error](err); ok {
		return wire.ServerError(re.Error())
	}
	return err
}

// reply converts a reply of go-redis.
func reply(v any) wire.Reply {
	switch v := v.(type) {
	case int64:
		return wire.Number(v)
	case string:
		return wire.Text(v)
	case []any:
		l := make([]wire.Reply, len(v))
		for i := range v {
			l[i] = reply(v[i])
		}
		return wire.List(l)
	case map[any]any:
		l := make([]wire.Reply, 0, 2*len(v))
		for name, value := range v {
			l = append(l, reply(name), reply(value))
		}
		return wire.List(l)
	case error:
		return wire.Failed(failure(v))
	}
	return wire.Reply{}
}

// cluster is a client for a cluster as a [client.Cluster].
type cluster struct{ c *redis.ClusterClient }

// Owner implements [client.Cluster].
func (c cluster) Owner(ctx context.Context, key string) (string, client.Library, error) {
	n, err := c.c.MasterForKey(ctx, key)
	if err != nil {
		return "", nil, failure(err)
	}
	return n.Options().Addr, library{n}, nil
}

// Primaries implements [client.Cluster].
func (c cluster) Primaries(ctx context.Context) (map[string]client.Library, error) {
	var mu sync.Mutex
	all := make(map[string]client.Library)
	err := c.c.ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all[n.Options().Addr] = library{n}
		return nil
	})
	if err != nil {
		return nil, failure(err)
	}
	return all, nil
}

// Reload implements [client.Cluster].
func (c cluster) Reload(ctx context.Context) { c.c.ReloadState(ctx) }
