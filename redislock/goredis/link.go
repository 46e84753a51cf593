package goredis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// single is a client for one server as a [link.Client].
type single struct{ c *redis.Client }

// Do implements [link.Client].
func (s single) Do(ctx context.Context, words ...string) (link.Reply, error) {
	cmd := newOnce(words)
	_ = s.c.Process(ctx, cmd) // it has the error
	return answer(cmd.Result())
}

// once is a command that the client must not repeat when its answer was lost: a
// Leave would find nothing, and a release be told as a loss. The core repeats,
// and knows then that it does.
type once struct{ *redis.Cmd }

func newOnce(words []string) once { return once{redis.NewCmd(bg, list(words)...)} }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// Conn implements [link.Client].
func (s single) Conn() link.Conn { return &conn{c: s.c.Conn()} }

// Listen implements [link.Client].
func (s single) Listen(sharded bool, heard func(message string), dropped func(channel string)) link.Ear {
	return newEar(s.c, sharded, heard, dropped)
}

// conn is one connection as a [link.Conn]. The client's own serves one caller
// at a time, and is not to be closed while it does.
type conn struct {
	mu     sync.Mutex
	c      *redis.Conn
	closed atomic.Bool
}

func (c *conn) lock() error {
	c.mu.Lock()
	if c.closed.Load() {
		c.unlock()
		return errLost
	}
	return nil
}

func (c *conn) unlock() {
	c.mu.Unlock()
	if c.closed.Load() {
		c.Close()
	}
}

// Do implements [link.Conn].
func (c *conn) Do(words ...string) (link.Reply, error) {
	if err := c.lock(); err != nil {
		return link.Reply{}, err
	}
	defer c.unlock()
	cmd := newOnce(words)
	_ = c.c.Process(bg, cmd)
	return answer(cmd.Result())
}

// Pipe implements [link.Conn].
func (c *conn) Pipe(commands [][]string) []link.Reply {
	replies := make([]link.Reply, len(commands))
	if err := c.lock(); err != nil {
		for i := range replies {
			replies[i] = link.Failed(err)
		}
		return replies
	}
	defer c.unlock()
	p := c.c.Pipeline()
	cmds := make([]once, len(commands))
	for i, words := range commands {
		cmds[i] = newOnce(words)
		_ = p.Process(bg, cmds[i])
	}
	_, _ = p.Exec(bg) // each has its own error
	for i, cmd := range cmds {
		r, err := answer(cmd.Result())
		if err != nil {
			r = link.Failed(err)
		}
		replies[i] = r
	}
	return replies
}

// Close implements [link.Conn]. A connection that is in use is closed by its
// user, within the client's time-out.
func (c *conn) Close() {
	c.closed.Store(true)
	if c.mu.TryLock() {
		_ = c.c.Close()
		c.mu.Unlock()
	}
}

func list(words []string) []any {
	l := make([]any, len(words))
	for i, w := range words {
		l[i] = w
	}
	return l
}

// answer reads what the client returned.
func answer(v any, err error) (link.Reply, error) {
	switch {
	case err == nil:
		return reply(v), nil
	case errors.Is(err, redis.Nil):
		return link.Reply{}, nil
	case errors.Is(err, redis.ErrClosed):
		return link.Reply{}, link.ErrClosed
	}
	return link.Reply{}, failure(err)
}

// failure tells the server's errors from others.
func failure(err error) error {
	if re, ok := errors.AsType[redis.Error](err); ok {
		return link.ServerError(re.Error())
	}
	return err
}

// reply reads an answer as the client has it.
func reply(v any) link.Reply {
	switch v := v.(type) {
	case int64:
		return link.Number(v)
	case string:
		return link.Text(v)
	case []any:
		l := make([]link.Reply, len(v))
		for i := range v {
			l[i] = reply(v[i])
		}
		return link.List(l)
	case map[any]any:
		l := make([]link.Reply, 0, 2*len(v))
		for name, value := range v {
			l = append(l, reply(name), reply(value))
		}
		return link.List(l)
	case error:
		return link.Failed(failure(v))
	}
	return link.Reply{}
}

// cluster is a client for a cluster as a [link.Cluster].
type cluster struct{ c *redis.ClusterClient }

// Owner implements [link.Cluster].
func (c cluster) Owner(ctx context.Context, key string) (string, link.Client, error) {
	n, err := c.c.MasterForKey(ctx, key)
	if err != nil {
		return "", nil, failure(err)
	}
	return n.Options().Addr, single{n}, nil
}

// Primaries implements [link.Cluster].
func (c cluster) Primaries(ctx context.Context) (map[string]link.Client, error) {
	var mu sync.Mutex
	all := make(map[string]link.Client)
	err := c.c.ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all[n.Options().Addr] = single{n}
		return nil
	})
	if err != nil {
		return nil, failure(err)
	}
	return all, nil
}

// Reload implements [link.Cluster].
func (c cluster) Reload(ctx context.Context) { c.c.ReloadState(ctx) }
