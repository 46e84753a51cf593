package etcdlock_test

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// locks returns a client of the core on a server.
func locks(t testing.TB, s *servers.EtcdServer, query string, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	d, err := etcdlock.Open(ctx, s.URL(query))
	if err != nil {
		t.Fatal(err)
	}
	return locksOn(t, d, opts...)
}

func locksOn(t testing.TB, d *etcdlock.Driver, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(d, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Logf("Close: %v", err)
		}
	})
	return c
}

// within returns a context with a bound that is long enough for a busy machine.
func within(t testing.TB, d time.Duration) context.Context {
	c, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return c
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// waiting waits until a queue has n tickets.
func waiting(t testing.TB, c *holdfast.Client, name string, n int) {
	t.Helper()
	eventually(t, "enough tickets are in line", func() bool {
		limit, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		l, err := c.Inspect(limit, name)
		return err == nil && len(l.Holders)+len(l.Waiters) == n
	})
}

// lockCommand is a run of etcdctl lock NAME, which holds the lock until end is
// called.
type lockCommand struct {
	cmd  *exec.Cmd
	held chan string // its key
}

func etcdctlLock(t *testing.T, s *servers.EtcdServer, name string) *lockCommand {
	t.Helper()
	l := &lockCommand{cmd: s.Ctl(t, "lock", name), held: make(chan string, 1)}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		if sc := bufio.NewScanner(out); sc.Scan() {
			l.held <- sc.Text()
		}
	}()
	t.Cleanup(l.end)
	return l
}

func (l *lockCommand) end() {
	l.cmd.Process.Signal(syscall.SIGTERM)
	l.cmd.Wait()
}

func (l *lockCommand) wait(t *testing.T) string {
	t.Helper()
	select {
	case key := <-l.held:
		return key
	case <-time.After(2 * time.Minute):
		t.Fatal("etcdctl lock does not get the lock")
		return ""
	}
}

func TestEtcdctlLockExcludesUsAndWeIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		// With this TTL, only an event can wake our client in time.
		c := locks(t, s, "", holdfast.WithTTL(time.Hour))
		m := c.Mutex("ctl")
		theirs := etcdctlLock(t, s, "ctl")
		if key := theirs.wait(t); !strings.HasPrefix(key, "ctl/") {
			t.Errorf("etcdctl lock has the key %q", key)
		}
		if _, err := m.TryLock(ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock: %v, want ErrHeld", err)
		}
		if _, err := c.RWMutex("ctl").TryRLock(ctx); !errors.Is(err, holdfast.ErrKindMismatch) {
			t.Errorf("TryRLock beside etcdctl lock: %v, want ErrKindMismatch", err)
		}
		got := make(chan *holdfast.Hold, 1)
		go func() {
			h, err := m.Lock(within(t, 2*time.Minute))
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
		waiting(t, c, "ctl", 2)
		theirs.end()
		h := <-got
		if h == nil {
			t.FailNow()
		}
		second := etcdctlLock(t, s, "ctl")
		waiting(t, c, "ctl", 2)
		select {
		case <-second.held:
			t.Error("etcdctl lock got what we hold")
		case <-time.After(100 * time.Millisecond):
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
		second.wait(t)
	})
}

func mutexOf(t *testing.T, cli *clientv3.Client, name string) *concurrency.Mutex {
	t.Helper()
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return concurrency.NewMutex(s, name)
}

// TestForeignMutexInLine checks that our client, a foreign one and ours again
// get their turns in the order of their requests.
func TestForeignMutexInLine(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		// With this TTL, only events can wake the waiters in time.
		a, b := locks(t, s, "", holdfast.WithTTL(time.Hour)), locks(t, s, "", holdfast.WithTTL(time.Hour))
		cli := client(t, s, nil)
		theirs := mutexOf(t, cli, "line")
		order := make(chan string, 3)
		h, err := a.Mutex("line").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := mutexOf(t, cli, "line").TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
			t.Errorf("their TryLock: %v, want ErrLocked", err)
		}
		errs := make(chan error, 2)
		go func() {
			err := theirs.Lock(within(t, 2*time.Minute))
			order <- "theirs"
			errs <- errors.Join(err, theirs.Unlock(ctx))
		}()
		waiting(t, a, "line", 2)
		go func() {
			h, err := b.Mutex("line").Lock(within(t, 2*time.Minute))
			order <- "ours"
			if err == nil {
				err = h.Unlock()
			}
			errs <- err
		}()
		waiting(t, a, "line", 3)
		order <- "first"
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		for _, want := range []string{"first", "theirs", "ours"} {
			if got := <-order; got != want {
				t.Errorf("%s came when it was the turn of %s", got, want)
			}
		}
	})
}

// TestMixedCount checks that clients of both kinds, counting together, come to
// the exact number.
func TestMixedCount(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	n, inside := 0, 0
	errs := make(chan error)
	const each = 5
	section := func() {
		if inside++; inside != 1 {
			t.Errorf("%d inside", inside)
		}
		n++
		inside--
	}
	for range 4 {
		m := locks(t, s, "").Mutex("mixed")
		theirs := mutexOf(t, client(t, s, nil), "mixed")
		go func() {
			var err error
			for range each {
				err = errors.Join(err, m.Do(ctx, func(context.Context) error { section(); return nil }))
			}
			errs <- err
		}()
		go func() {
			var err error
			for range each {
				if lerr := theirs.Lock(ctx); lerr != nil {
					err = errors.Join(err, lerr)
					continue
				}
				section()
				err = errors.Join(err, theirs.Unlock(ctx))
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n != 8*each {
		t.Errorf("counted to %d, want %d", n, 8*each)
	}
}

// TestF62_NestedNames checks that a lock does not block another one whose name
// begins with its own.
func TestF62_NestedNames(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	c := locks(t, s, "")
	for _, name := range []string{"nest/ed/deep", "nest/", "nest/ed", "nest"} {
		h, err := c.Mutex(name).TryLock(ctx)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		defer h.Unlock()
	}
}

// TestSlashInTheirNames checks that the foreign name a/b is our b with the
// prefix a/, both ways. Our a/b is another lock. Our queue a is refused while
// it contains a foreign key, or one of ours with the prefix a/.
func TestSlashInTheirNames(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	below, bare := locks(t, s, "prefix=slashed/"), locks(t, s, "")
	theirs := mutexOf(t, client(t, s, nil), "slashed/b")
	h := lock(t, below, "b")
	if err := theirs.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("their TryLock: %v, want ErrLocked", err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if err := theirs.Lock(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := below.Mutex("b").TryLock(ctx); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("with the prefix: %v, want ErrHeld", err)
	}
	if h, err := bare.Mutex("slashed/b").TryLock(ctx); err != nil {
		t.Errorf("the name with a slash: %v", err)
	} else if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if err := theirs.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if _, err := bare.Mutex("slashed").TryLock(ctx); err == nil || !strings.Contains(err.Error(), `"slashed/`) {
		t.Errorf("the name of a prefix: %v, want an error that names what lies there", err)
	}
	nested := mutexOf(t, client(t, s, nil), "outer/b")
	if err := nested.Lock(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := bare.Mutex("outer").TryLock(ctx); err == nil || !strings.Contains(err.Error(), nested.Key()) {
		t.Errorf("the name before the slash: %v, want an error that names %s", err, nested.Key())
	}
	if err := nested.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := lock(t, bare, "outer").Unlock(); err != nil {
		t.Error(err)
	}
}

// TestForeignContent checks that a key in a queue that is not a lock's leads to
// an error and stays unchanged, and that no key of ours stays.
//
// Covers: F37, F66.
func TestForeignContent(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	c := locks(t, s, "prefix=foreign/")
	cli := client(t, s, nil)
	for _, key := range []string{"zzz", "0abc", "abc", "s1-1-a-x", "rw-zz", "config/value", ""} {
		full := "foreign/data" + "/" + key
		if _, err := cli.Put(ctx, full, "precious"); err != nil {
			t.Fatal(err)
		}
		for _, lock := range []func() (*holdfast.Hold, error){
			func() (*holdfast.Hold, error) { return c.Mutex("data").Lock(within(t, 20*time.Second)) },
			func() (*holdfast.Hold, error) { return c.Mutex("data").TryLock(ctx) },
			func() (*holdfast.Hold, error) { return c.RWMutex("data").Lock(within(t, 20*time.Second)) },
		} {
			h, err := lock()
			if err == nil {
				t.Errorf("key %q: locked", key)
				h.Unlock()
				continue
			}
			if se := (*holdfast.StoreError)(nil); !errors.As(err, &se) || !strings.Contains(err.Error(), full) {
				t.Errorf("key %q: error is %v", key, err)
			}
		}
		r, err := cli.Get(ctx, "foreign/data/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Kvs) != 1 || string(r.Kvs[0].Key) != full || string(r.Kvs[0].Value) != "precious" {
			t.Errorf("key %q: there are now %v", key, r.Kvs)
		}
		if _, err := cli.Delete(ctx, full); err != nil {
			t.Fatal(err)
		}
	}
}
