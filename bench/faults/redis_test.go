package faults

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// dial makes a client that ends its requests with their contexts, which go-redis
// does only if asked.
func dial(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}

func openRedsync(addr string) (rival, error) {
	c := dial(addr)
	return redsyncs{redsync.New(pool.NewPool(c))}, c.Ping(context.Background()).Err()
}

type redsyncs struct{ r *redsync.Redsync }

func (r redsyncs) lock(ctx context.Context, name string) (held, error) {
	m := r.r.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1<<30), redsync.WithRetryDelay(50*time.Millisecond))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	var until atomic.Pointer[time.Time] // Until() is not meant to be read beside Extend
	note := func() { t := m.Until(); until.Store(&t) }
	note()
	return renewed(func() time.Time { return *until.Load() },
		func(ctx context.Context) error {
			ok, err := m.ExtendContext(ctx)
			if ok {
				note()
				return nil
			}
			return errors.Join(err, errRefused)
		},
		func(err error) bool {
			var taken *redsync.ErrTaken
			return errors.As(err, &taken) || errors.Is(err, redsync.ErrExtendFailed)
		},
		func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }), nil
}

func openRedislock(addr string) (rival, error) {
	c := dial(addr)
	return redislocks{bsm.New(c)}, c.Ping(context.Background()).Err()
}

type redislocks struct{ c *bsm.Client }

func (r redislocks) lock(ctx context.Context, name string) (held, error) {
	var until atomic.Pointer[time.Time]
	// It tries for no longer than the TTL unless its context ends later.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		asked := time.Now()
		l, err := r.c.Obtain(ctx, name, ttl, nil)
		switch {
		case err == nil:
			end := asked.Add(ttl)
			until.Store(&end)
			return renewed(func() time.Time { return *until.Load() },
				func(ctx context.Context) error {
					end := time.Now().Add(ttl)
					err := l.Refresh(ctx, ttl, nil)
					if err == nil {
						until.Store(&end)
					}
					return err
				},
				func(err error) bool { return errors.Is(err, bsm.ErrNotObtained) },
				l.Release), nil
		case !errors.Is(err, bsm.ErrNotObtained):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func openRueidislock(addr string) (rival, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		KeyValidity:    ttl,
		ExtendInterval: ttl / 3,
		TryNextAfter:   ttl / 3,
		NoLoopTracking: true,
	})
	return rueidislocks{l}, err
}

type rueidislocks struct{ l rueidislock.Locker }

func (r rueidislocks) lock(ctx context.Context, name string) (held, error) {
	// Its hold ends with the context that it was asked with.
	own, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel)
	c, release, err := r.l.WithContext(own, name)
	stop()
	if err != nil {
		cancel()
		return nil, err
	}
	return rueidisHold{c, func() { release(); cancel() }}, nil
}

type rueidisHold struct {
	ctx     context.Context
	release func()
}

func (h rueidisHold) valid() bool                  { return h.ctx.Err() == nil }
func (h rueidisHold) lost() <-chan struct{}        { return h.ctx.Done() }
func (h rueidisHold) token() uint64                { return 0 }
func (h rueidisHold) unlock(context.Context) error { h.release(); return nil }
