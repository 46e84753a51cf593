package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

// ttl is the lease that all are given. It is a multiple of the seconds that etcd
// counts in.
const ttl = 3 * time.Second

// rival is a lock library, as a program would use it that wants the best of it.
type rival interface {
	// lock waits for the lock of that name, which is of letters and digits.
	lock(ctx context.Context, name string) (held, error)
}

// held is a lock that one holds.
type held interface {
	// valid says whether the program may believe that it still holds. It is asked
	// before each write, and so sends nothing.
	valid() bool
	// lost is closed when the library tells of a loss; nil if it never does.
	lost() <-chan struct{}
	// token is a number that a resource could compare; 0 if there is none.
	token() uint64
	unlock(ctx context.Context) error
}

// contender is a row of the table.
type contender struct {
	name  string
	store string // redis, etcd or zookeeper
	how   string // which settings, and what was written around the library
	open  func(addr string) (rival, error)
}

var contenders = []contender{
	{"Holdfast", "redis", "TTL 3 s", holdfastAt("redis://")},
	{"redsync", "redis", "expiry 3 s, a try every 50 ms, extended every second by a loop of ours, requests that end with their contexts, Until() before each write", openRedsync},
	{"bsm/redislock", "redis", "TTL 3 s, a try every 50 ms, refreshed every second by a loop of ours, requests that end with their contexts, the last refresh's start + TTL before each write", openRedislock},
	{"rueidislock", "redis", "majority of 1, validity 3 s, extended every second, tracking without loops", openRueidislock},
	{"Holdfast", "etcd", "TTL 3 s", holdfastAt("etcd://")},
	{"concurrency.Mutex", "etcd", "session of 3 s, Done() before each write", openConcurrency},
	{"Holdfast", "zookeeper", "TTL 3 s", holdfastAt("zk://")},
	{"go-zookeeper Lock", "zookeeper", "session of 3 s, expiry told by the session's events, which a loop of ours reads", openZooKeeper()},
	{"go-zookeeper Lock, cautious", "zookeeper", "the same, and a lost connection is taken for a lost lock", openZooKeeper(zk.StateDisconnected)},
}

func holdfastAt(scheme string) func(string) (rival, error) {
	return func(addr string) (rival, error) {
		c, err := anylock.Open(context.Background(), scheme+addr, holdfast.WithTTL(ttl))
		if err != nil {
			return nil, err
		}
		return ours{c}, nil
	}
}

type ours struct{ c *holdfast.Client }

func (o ours) lock(ctx context.Context, name string) (held, error) {
	h, err := o.c.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return hold{h}, nil
}

type hold struct{ h *holdfast.Hold }

func (h hold) valid() bool                  { return h.h.Err() == nil }
func (h hold) lost() <-chan struct{}        { return h.h.Context().Done() }
func (h hold) token() uint64                { return h.h.Token() }
func (h hold) unlock(context.Context) error { return h.h.Unlock() }

// leased is the hold of a library without a watchdog of its own: a loop renews
// it, and the program goes by the end of the lease as it knows it.
type leased struct {
	until func() time.Time
	stop  func()
	gone  chan struct{}
	free  func(context.Context) error
	fence uint64
}

// renewed starts the loop. A renewal that fails is tried again until the lease is
// over, as a program would that does not give up at the first lost packet; refused
// says which errors mean that the lock is somebody else's.
func renewed(until func() time.Time, renew func(context.Context) error, refused func(error) bool, free func(context.Context) error) *leased {
	ctx, stop := context.WithCancel(context.Background())
	l := &leased{until: until, stop: stop, gone: make(chan struct{}), free: free}
	go func() {
		for ctx.Err() == nil && time.Now().Before(until()) {
			wait := min(ttl/3, time.Until(until()))
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			asked, cancel := context.WithTimeout(ctx, min(ttl/3, time.Until(until())))
			err := renew(asked)
			cancel()
			if ctx.Err() == nil && refused(err) {
				break
			}
		}
		if ctx.Err() == nil {
			close(l.gone)
		}
	}()
	return l
}

func (l *leased) valid() bool {
	select {
	case <-l.gone:
		return false
	default:
		return time.Now().Before(l.until())
	}
}
func (l *leased) lost() <-chan struct{} { return l.gone }
func (l *leased) token() uint64         { return l.fence }
func (l *leased) unlock(ctx context.Context) error {
	l.stop()
	return l.free(ctx)
}

func find(store, who string) (contender, error) {
	for _, c := range contenders {
		if c.store == store && c.name == who {
			return c, nil
		}
	}
	return contender{}, fmt.Errorf("nobody is called %q on %q", who, store)
}

func (c contender) id() string {
	return strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(c.name) + "@" + c.store
}

var errRefused = errors.New("the lock is somebody else's")
