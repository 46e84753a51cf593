package zklock_test

import (
	"flag"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var kazoo = flag.String("zklock.kazoo", "", "a Python interpreter that has kazoo, to run tests beside its locks")

// TestF131_WithKazoo checks that kazoo's locks and Holdfast's exclude and wake
// each other, and count exactly, when kazoo is configured to see Holdfast's
// nodes.
func TestF131_WithKazoo(t *testing.T) {
	if *kazoo == "" {
		t.Log("left out: say -zklock.kazoo, or run scripts/clients")
		return
	}
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	k := start(t, "kazoo", exec.Command(*kazoo, filepath.Join("..", "interop", "kazoo", "peer.py"), s.Addrs()[0]))
	c := newClient(t, s.URL("", "root=/"))

	t.Run("mutex", func(t *testing.T) {
		name := unique("kazoo")
		excludes(t, c.Mutex(name), &processLock{k, "mutex", "/" + name}, func() bool {
			return len(children(t, look, "/"+name)) == 2
		})
	})
	t.Run("read/write", func(t *testing.T) {
		name := unique("kazoo-rw")
		rw := c.RWMutex(name)
		read, write := &processLock{k, "read", "/" + name}, &processLock{k, "write", "/" + name}
		w, err := rw.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if read.try(t) || write.try(t) {
			t.Fatal("kazoo reads or writes while we write")
		}
		if err := w.Unlock(); err != nil {
			t.Fatal(err)
		}
		r, err := rw.RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if write.try(t) || !read.try(t) {
			t.Fatal("while we read, kazoo writes or cannot read")
		}
		if err := r.Unlock(); err != nil {
			t.Fatal(err)
		}
		if _, err := rw.TryLock(t.Context()); err == nil {
			t.Fatal("we write while kazoo reads")
		}
		if r, err = rw.TryRLock(t.Context()); err != nil {
			t.Fatalf("we cannot read while kazoo reads: %v", err)
		}
		if err := r.Unlock(); err != nil {
			t.Fatal(err)
		}
		read.unlock(t)
		if !write.try(t) {
			t.Fatal("kazoo cannot write a free path")
		}
		if _, err := rw.TryRLock(t.Context()); err == nil {
			t.Fatal("we read while kazoo writes")
		}
		write.unlock(t)
	})
	t.Run("count", func(t *testing.T) {
		countsWith(t, k, look, c, unique("kazoo-count"), 200)
	})
}
