package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

// dial makes a client as package redislock makes its own.
func dial(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, PipelineMultiplex: -1,
		ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10, RingScaleEachConn: 8,
	})
}

// uncut is the context of the limits' requests. rueidis reads the answer to a lone
// request in its caller's goroutine unless a context can be cancelled: a limit has the
// best mode there is.
var uncut = context.Background()

func closing(c rueidis.Client) func() error {
	return func() error { c.Close(); return nil }
}

// openEvalsha sends what Holdfast sends, with nothing but the name ever
// different: no ids, no deadlines, no renewals, no judgement.
func openEvalsha(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	var r replay
	if err := json.Unmarshal([]byte(s.Server), &r); err != nil {
		return nil, err
	}
	c, err := dial(r.Addr)
	if err != nil {
		return nil, err
	}
	named := map[string][2][]string{}
	for i := range 10000 { // made before the run, so that the run only reads it
		name := fmt.Sprint(s.Prefix, "own-", i)
		var both [2][]string
		for i, words := range r.Words {
			for _, w := range words[1:] {
				both[i] = append(both[i], strings.ReplaceAll(w, captureName, name))
			}
		}
		named[name] = both
	}
	send := func(words []string) error {
		return c.Do(uncut, c.B().Arbitrary("EVALSHA").Args(words...).Build()).Error()
	}
	return &client{
		lock: func(_ context.Context, name string) (bench.Held, error) {
			both := named[name]
			return held(func() error { return send(both[1]) }), send(both[0])
		},
		end: closing(c),
	}, nil
}

// openSetNX is the simplest lock that releases nobody else's.
func openSetNX(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c, err := dial(s.Server)
	if err != nil {
		return nil, err
	}
	del := rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	return &client{
		lock: func(_ context.Context, name string) (bench.Held, error) {
			err := c.Do(uncut, c.B().Set().Key(name).Value("me").Nx().PxMilliseconds(30000).Build()).Error()
			return held(func() error { return del.Exec(uncut, c, []string{name}, []string{"me"}).Error() }), err
		},
		end: closing(c),
	}, nil
}

// A lock that its holder can take again: a hash that counts, as Redisson has it.
const (
	reentrantJoin = `if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
			redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
			redis.call('PEXPIRE', KEYS[1], ARGV[2])
			return nil
		end
		return redis.call('PTTL', KEYS[1])`
	reentrantLeave = `if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
		if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
			redis.call('PEXPIRE', KEYS[1], ARGV[2])
			return 0
		end
		redis.call('DEL', KEYS[1])
		return 1`
)

// openReentrant is a lock of these scripts.
func openReentrant(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	c, err := dial(s.Server)
	if err != nil {
		return nil, err
	}
	join, leave := rueidis.NewLuaScript(reentrantJoin), rueidis.NewLuaScript(reentrantLeave)
	me := []string{"9b2e4e9e-5b5a-4c8e-9a59-0b6f2c7d1e11:1", "30000"}
	return &client{
		lock: func(_ context.Context, name string) (bench.Held, error) {
			keys := []string{name}
			if err := join.Exec(uncut, c, keys, me).Error(); !rueidis.IsRedisNil(err) {
				return nil, fmt.Errorf("the lock is taken: %w", err)
			}
			return held(func() error { return leave.Exec(uncut, c, keys, me).Error() }), nil
		},
		end: closing(c),
	}, nil
}

// openBLPOP passes an element of a list around.
func openBLPOP(ctx context.Context, s bench.Spec, seat bench.Seat) (bench.Client, error) {
	c, err := dial(s.Server)
	if err != nil {
		return nil, err
	}
	push := func(name string) error {
		return c.Do(context.Background(), c.B().Rpush().Key(name).Element("x").Build()).Error()
	}
	if seat.Index == 0 {
		if err := push(s.Prefix + "shared"); err != nil {
			return nil, err
		}
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			err := c.Do(ctx, c.B().Blpop().Key(name).Timeout(0).Build()).Error()
			return held(func() error { return push(name) }), err
		},
		end: closing(c),
	}, nil
}

// listen has a channel's messages come to a Go channel, on a connection of
// their own.
func listen(ctx context.Context, c rueidis.Client, channel string) (chan struct{}, func(), error) {
	heard := make(chan struct{}, 4)
	conn, release := c.Dedicate()
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) { heard <- struct{}{} }})
	return heard, release, conn.Do(ctx, conn.B().Subscribe().Channel(channel).Build()).Error()
}

// openPublish has each client wait for a message and send one to the next.
func openPublish(ctx context.Context, s bench.Spec, seat bench.Seat) (bench.Client, error) {
	c, err := dial(s.Server)
	if err != nil {
		return nil, err
	}
	channel := func(i int) string { return fmt.Sprint(s.Prefix, "ring-", i%seat.Of) }
	heard, release, err := listen(ctx, c, channel(seat.Index))
	if err != nil {
		return nil, err
	}
	if seat.Index == 0 {
		heard <- struct{}{}
	}
	return &client{
		lock: func(ctx context.Context, _ string) (bench.Held, error) {
			select {
			case <-heard:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return held(func() error {
				return c.Do(context.Background(), c.B().Publish().Channel(channel(seat.Index+1)).Message("x").Build()).Error()
			}), nil
		},
		end: func() error { release(); c.Close(); return nil },
	}, nil
}

// The least that a queue and a hand-over can be: no deadlines, no tokens, no
// metadata, no repeated requests.
const (
	leastJoin = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
		redis.call('RPUSH', KEYS[2], ARGV[1]) return 0`
	leastLeave = `local next = redis.call('LPOP', KEYS[2])
		if not next then return redis.call('DEL', KEYS[1]) end
		redis.call('SET', KEYS[1], next, 'PX', ARGV[2])
		return redis.call('PUBLISH', next, 'held')`
)

// openLeast is a lock of these scripts.
func openLeast(ctx context.Context, s bench.Spec, seat bench.Seat) (bench.Client, error) {
	c, err := dial(s.Server)
	if err != nil {
		return nil, err
	}
	me := fmt.Sprint(s.Prefix, "least-", seat.Index)
	heard, release, err := listen(ctx, c, me)
	if err != nil {
		return nil, err
	}
	join, leave := rueidis.NewLuaScript(leastJoin), rueidis.NewLuaScript(leastLeave)
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			keys, args := []string{name, name + "-queue"}, []string{me, "30000"}
			got, err := join.Exec(ctx, c, keys, args).AsInt64()
			if err != nil {
				return nil, err
			}
			if got == 0 {
				select {
				case <-heard:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return held(func() error { return leave.Exec(context.Background(), c, keys, args).Error() }), nil
		},
		end: func() error { release(); c.Close(); return nil },
	}, nil
}
