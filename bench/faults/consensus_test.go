package faults

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func openConcurrency(addr string) (rival, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{addr},
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    time.Second,
		DialKeepAliveTimeout: time.Second,
	})
	return concurrencies{c}, err
}

type concurrencies struct{ c *clientv3.Client }

func (c concurrencies) lock(ctx context.Context, name string) (held, error) {
	s, err := concurrency.NewSession(c.c, concurrency.WithTTL(int(ttl/time.Second)))
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, name)
	if err := m.Lock(ctx); err != nil {
		// The rest of the failed wait goes with its session.
		s.Orphan()
		return nil, err
	}
	return etcdHold{s, m}, nil
}

type etcdHold struct {
	s *concurrency.Session
	m *concurrency.Mutex
}

func (h etcdHold) valid() bool {
	select {
	case <-h.s.Done():
		return false
	default:
		return true
	}
}
func (h etcdHold) lost() <-chan struct{} { return h.s.Done() }
func (h etcdHold) token() uint64         { return uint64(h.m.Header().Revision) }
func (h etcdHold) unlock(ctx context.Context) error {
	err := h.m.Unlock(ctx)
	h.s.Orphan()
	return err
}

// openZooKeeper takes a lock for lost when the session has expired, as the library
// tells it, or already in any of some more states.
func openZooKeeper(more ...zk.State) func(string) (rival, error) {
	return func(addr string) (rival, error) { return openZK(addr, append(more, zk.StateExpired)) }
}

func openZK(addr string, ends []zk.State) (rival, error) {
	c, events, err := zk.Connect([]string{addr}, ttl, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	z := &zookeepers{c: c}
	z.gone.Store(make(chan struct{}))
	go func() {
		for e := range events {
			if e.Type == zk.EventSession && slices.Contains(ends, e.State) {
				close(z.gone.Swap(make(chan struct{})).(chan struct{}))
			}
		}
	}()
	for deadline := time.Now().Add(10 * time.Second); c.State() != zk.StateHasSession; {
		if time.Now().After(deadline) {
			return nil, context.DeadlineExceeded
		}
		time.Sleep(10 * time.Millisecond)
	}
	return z, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

type zookeepers struct {
	c    *zk.Conn
	gone atomic.Value // of chan struct{}, closed when the lock is lost
}

// lock cannot be cancelled: the library has no way to, so the wait goes on in the
// background and lets go of what it gets.
func (z *zookeepers) lock(ctx context.Context, name string) (held, error) {
	l := zk.NewLock(z.c, "/"+name, zk.WorldACL(zk.PermAll))
	got := make(chan error, 1)
	gone := z.gone.Load().(chan struct{})
	go func() { got <- l.Lock() }()
	select {
	case err := <-got:
		if err != nil {
			return nil, err
		}
		return zkHold{l, gone}, nil
	case <-ctx.Done():
		go func() {
			if <-got == nil {
				_ = l.Unlock()
			}
		}()
		return nil, ctx.Err()
	}
}

type zkHold struct {
	l    *zk.Lock
	gone chan struct{}
}

func (h zkHold) valid() bool {
	select {
	case <-h.gone:
		return false
	default:
		return true
	}
}
func (h zkHold) lost() <-chan struct{}        { return h.gone }
func (h zkHold) token() uint64                { return 0 }
func (h zkHold) unlock(context.Context) error { return h.l.Unlock() }
