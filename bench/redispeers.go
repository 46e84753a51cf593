package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

// openRedsync has the settings "" for redsync's own, or the time between two
// tries. It stops trying after 32 of them by default: then it is asked again.
func openRedsync(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	var pools []syncredis.Pool
	var clients []*redis.Client
	for addr := range strings.SplitSeq(s.Server, ",") {
		c := redis.NewClient(&redis.Options{Addr: addr})
		clients, pools = append(clients, c), append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	var opts []redsync.Option
	if s.Settings != "" {
		delay, err := time.ParseDuration(s.Settings)
		if err != nil {
			return nil, err
		}
		opts = append(opts, redsync.WithTries(1<<30), redsync.WithRetryDelay(delay))
	}
	if s.TTL > 0 {
		opts = append(opts, redsync.WithExpiry(s.TTL))
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			for {
				m := rs.NewMutex(name, opts...)
				err := m.LockContext(ctx)
				if err == nil {
					return held(func() error { _, err := m.Unlock(); return err }), nil
				}
				if taken := (*redsync.ErrTaken)(nil); ctx.Err() != nil || !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
					return nil, err
				}
			}
		},
		end: func() error {
			var errs []error
			for _, c := range clients {
				errs = append(errs, c.Close())
			}
			return errors.Join(errs...)
		},
	}, nil
}

// openRedislock has the time between two tries as its settings; by default it
// does not try twice.
func openRedislock(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	delay, err := time.ParseDuration(s.Settings)
	if err != nil {
		return nil, err
	}
	c := redis.NewClient(&redis.Options{Addr: s.Server})
	locks := redislock.New(c)
	ttl := 30 * time.Second
	if s.TTL > 0 {
		ttl = s.TTL
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			for {
				l, err := locks.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(delay)})
				if err == nil {
					return held(func() error { return l.Release(context.Background()) }), nil
				}
				// Without a deadline in ctx it gives up after the TTL.
				if ctx.Err() != nil || !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, context.DeadlineExceeded) {
					return nil, err
				}
			}
		},
		end: c.Close,
	}, nil
}

// openRueidislock has the settings "" for rueidislock's own, or "best": one
// key in place of three, and no message about one's own writes.
func openRueidislock(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	o := rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{s.Server}}}
	if s.Settings == "best" {
		o.KeyMajority, o.NoLoopTracking = 1, true
	}
	if s.TTL > 0 {
		o.KeyValidity = s.TTL
	}
	locks, err := rueidislock.NewLocker(o)
	if err != nil {
		return nil, err
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			_, cancel, err := locks.WithContext(ctx, name)
			if err != nil {
				return nil, err
			}
			return held(func() error { cancel(); return nil }), nil
		},
		end: func() error { locks.Close(); return nil },
	}, nil
}
