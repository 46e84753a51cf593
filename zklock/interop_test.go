package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// A peer is another library's lock on one path. Its methods fail the test when
// their requests do not succeed.
type peer interface {
	try(t *testing.T) bool // takes the lock if that is possible at once
	lock(t *testing.T, done chan<- error)
	unlock(t *testing.T)
}

// excludes plays both directions on a fresh path: the holder keeps the other
// out, and its release wakes the other.
func excludes(t *testing.T, ours *holdfast.Mutex, theirs peer, waiting func() bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := ours.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if theirs.try(t) {
		t.Fatal("the peer takes what we hold")
	}
	done := make(chan error, 1)
	theirs.lock(t, done)
	until(t, "the peer waits", waiting)
	select {
	case err := <-done:
		t.Fatalf("the peer does not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-ctx.Done():
		t.Fatal("our release does not wake the peer")
	}

	if _, err := ours.TryLock(ctx); err == nil {
		t.Fatal("we take what the peer holds")
	}
	got := make(chan error, 1)
	var mine *holdfast.Hold
	go func() {
		var err error
		mine, err = ours.Lock(ctx)
		got <- err
	}()
	until(t, "we wait", waiting)
	select {
	case err := <-got:
		t.Fatalf("we do not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	theirs.unlock(t)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if err := mine.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func newClient(t *testing.T, url string, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(open(t, url), append([]holdfast.ClientOption{holdfast.WithTTL(10 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// goLock is go-zookeeper's own Lock as a peer.
type goLock struct {
	conn *zk.Conn
	path string
	l    *zk.Lock
}

func (g *goLock) try(t *testing.T) bool { return len(children(t, g.conn, g.path)) == 0 }

func (g *goLock) lock(t *testing.T, done chan<- error) {
	g.l = zk.NewLock(g.conn, g.path, zk.WorldACL(zk.PermAll))
	go func() { done <- g.l.Lock() }()
}

func (g *goLock) unlock(t *testing.T) {
	if err := g.l.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestWithGoZooKeeperLock(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("go-lock")
	conn := raw(t, s.Addrs()...)
	c := newClient(t, s.URL("", "root=/"))
	excludes(t, c.Mutex(name), &goLock{conn: conn, path: "/" + name}, func() bool {
		return len(children(t, conn, "/"+name)) == 2
	})
}

func TestWithCurator(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	cu := startCurator(t, s.Addrs()[0])
	c := newClient(t, s.URL("", "root=/"))

	t.Run("mutex", func(t *testing.T) {
		name := unique("curator")
		excludes(t, c.Mutex(name), &processLock{cu, "mutex", "/" + name}, func() bool {
			return len(children(t, look, "/"+name)) == 2
		})
	})
	t.Run("read/write", func(t *testing.T) {
		name := unique("curator-rw")
		rw := c.RWMutex(name)
		wr, err := rw.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		read, write := &processLock{cu, "read", "/" + name}, &processLock{cu, "write", "/" + name}
		if read.try(t) || write.try(t) {
			t.Fatal("curator reads or writes while we write")
		}
		if err := wr.Unlock(); err != nil {
			t.Fatal(err)
		}
		r, err := rw.RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if write.try(t) {
			t.Fatal("curator writes while we read")
		}
		if !read.try(t) {
			t.Fatal("curator cannot read while we read")
		}
		if err := r.Unlock(); err != nil {
			t.Fatal(err)
		}
		if _, err := rw.TryLock(t.Context()); err == nil {
			t.Fatal("we write while curator reads")
		}
		r, err = rw.TryRLock(t.Context())
		if err != nil {
			t.Fatalf("we cannot read while curator reads: %v", err)
		}
		if err := r.Unlock(); err != nil {
			t.Fatal(err)
		}
		read.unlock(t)
		done := make(chan error, 1)
		write.lock(t, done)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, err := rw.TryRLock(t.Context()); err == nil {
			t.Fatal("we read while curator writes")
		}
		write.unlock(t)
	})
	t.Run("count", func(t *testing.T) {
		countsWith(t, cu, look, c, unique("curator-count"), 40)
	})
	t.Run("inspect", func(t *testing.T) {
		name := unique("curator-seen")
		l := &processLock{cu, "mutex", "/" + name}
		if !l.try(t) {
			t.Fatal("curator cannot lock a free path")
		}
		queue, err := c.Inspect(t.Context(), name)
		if err != nil || len(queue.Holders)+len(queue.Waiters) != 1 {
			t.Fatalf("a lock of curator's shows as %+v, %v", queue, err)
		}
		if err := c.Break(t.Context(), name, queue.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		h, err := c.Mutex(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
