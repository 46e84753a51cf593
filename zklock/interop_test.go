package zklock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// A peer is another library's lock on one path. Its calls fail the test when
// they do not succeed.
type peer interface {
	try(t *testing.T) bool // takes it if that can be at once
	lock(t *testing.T, done chan<- error)
	unlock(t *testing.T)
}

// excludes plays both directions on a fresh path: who holds keeps the other
// out, and a release wakes the other.
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

func newClient(t *testing.T, url string, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(open(t, url), append([]holdfast.Option{holdfast.WithTTL(10 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// goLock is go-zookeeper's own Lock.
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
	s := backends.SharedZooKeeper(t)
	name := unique("go-lock")
	conn := raw(t, s.Addrs()...)
	c := newClient(t, s.URL("", "root=/"))
	excludes(t, c.Mutex(name), &goLock{conn: conn, path: "/" + name}, func() bool {
		return len(children(t, conn, "/"+name)) == 2
	})
}

// curator is a Java process with Apache Curator, see interop/curator.
type curator struct {
	t   *testing.T
	in  io.WriteCloser
	out chan string
}

// startCurator compiles and runs it.
func startCurator(t *testing.T, addr string) *curator {
	t.Helper()
	java := backends.Java(t)
	classes := backends.JavaClasses(t, "libcurator-recipes-java", "curator-recipes", "curator-framework", "curator-client", "guava") +
		":" + backends.ZooKeeperClasses(t)
	javac := backends.Find(t, "HOLDFAST_JAVAC", "default-jdk-headless", "javac")
	dir := t.TempDir()
	if out, err := exec.Command(javac, "-cp", classes, "-d", dir, filepath.Join("..", "interop", "curator", "Peer.java")).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	cmd := exec.Command(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classes+":"+dir, "Peer", addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &curator{t: t, in: in, out: make(chan string, 16)}
	go func() {
		defer close(c.out)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.out <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		in.Close()
		for range c.out {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("curator: %v", err)
		}
	})
	if got := c.answer(); got != "ready" {
		t.Fatalf("curator says %q", got)
	}
	return c
}

func (c *curator) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *curator) answer() string {
	c.t.Helper()
	select {
	case s, ok := <-c.out:
		if !ok {
			c.t.Fatal("curator has ended")
		}
		return s
	case <-time.After(time.Minute):
		c.t.Fatal("curator says nothing")
	}
	return ""
}

// curatorLock is one of its locks: kind is mutex, read or write.
type curatorLock struct {
	c          *curator
	kind, path string
}

func (l *curatorLock) try(t *testing.T) bool {
	l.c.send("try %s %s", l.kind, l.path)
	return l.c.answer() == "held"
}

func (l *curatorLock) lock(t *testing.T, done chan<- error) {
	l.c.send("lock %s %s", l.kind, l.path)
	go func() {
		var err error
		if s, ok := <-l.c.out; s != "held" || !ok {
			err = fmt.Errorf("curator says %q", s)
		}
		done <- err
	}()
}

func (l *curatorLock) unlock(t *testing.T) {
	l.c.send("unlock %s %s", l.kind, l.path)
	if got := l.c.answer(); got != "released" {
		t.Fatalf("curator says %q", got)
	}
}

func TestWithCurator(t *testing.T) {
	t.Parallel()
	s := backends.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	cu := startCurator(t, s.Addrs()[0])
	c := newClient(t, s.URL("", "root=/"))

	t.Run("mutex", func(t *testing.T) {
		name := unique("curator")
		excludes(t, c.Mutex(name), &curatorLock{cu, "mutex", "/" + name}, func() bool {
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
		read, write := &curatorLock{cu, "read", "/" + name}, &curatorLock{cu, "write", "/" + name}
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
		// Both sides add to one node's number under the lock, in plain steps.
		name := unique("curator-count")
		counter := "/" + unique("counter")
		if _, err := look.Create(counter, []byte("0"), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		const n = 40
		cu.send("count %s %s %d", "/"+name, counter, n)
		for range n {
			err := c.Do(t.Context(), name, func(context.Context) error {
				data, _, err := look.Get(counter)
				if err != nil {
					return err
				}
				k := 0
				if _, err := fmt.Sscan(string(data), &k); err != nil {
					return err
				}
				_, err = look.Set(counter, fmt.Append(nil, k+1), -1)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := cu.answer(); got != "counted" {
			t.Fatalf("curator says %q", got)
		}
		data, _, err := look.Get(counter)
		if err != nil || strings.TrimSpace(string(data)) != fmt.Sprint(2*n) {
			t.Errorf("counted to %s, want %d; %v", data, 2*n, err)
		}
	})
	t.Run("inspect", func(t *testing.T) {
		name := unique("curator-seen")
		l := &curatorLock{cu, "mutex", "/" + name}
		if !l.try(t) {
			t.Fatal("curator cannot lock a free path")
		}
		line, err := c.Inspect(t.Context(), name)
		if err != nil || len(line.Tickets) != 1 {
			t.Fatalf("a lock of curator's shows as %+v, %v", line, err)
		}
		if err := c.Break(t.Context(), name, line.Tickets[0].ID); err != nil {
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
