package sqlitelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestOpenOnAFullDiskNamesTheCause fills the file system while no process has the
// file open: the next one cannot make the file of shared memory beside it.
func TestOpenOnAFullDiskNamesTheCause(t *testing.T) {
	if os.Geteuid() != 0 {
		servers.Lack(t, "file systems are mounted by root alone")
	}
	dir := t.TempDir()
	must(t, os.NewSyscallError("mount", unix.Mount("tmpfs", dir, "tmpfs", 0, "size=400k")))
	t.Cleanup(func() { must(t, os.NewSyscallError("umount", unix.Unmount(dir, unix.MNT_DETACH))) })
	ctx, path := context.Background(), filepath.Join(dir, "locks.db")
	d, err := Open(ctx, path, nil)
	must(t, err)
	must(t, d.Close())
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 400<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the file system took 400 KiB more than it has: %v", err)
	}
	if d, err := Open(ctx, path, nil); err == nil {
		_ = d.Close()
		t.Error("the file could be opened")
	} else if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("on a full disk: %v", err)
	}
	must(t, os.Remove(fill))
	d, err = Open(ctx, path, nil)
	must(t, err)
	must(t, d.Close())
}
