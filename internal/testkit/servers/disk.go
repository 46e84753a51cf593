package servers

import (
	_ "embed"
	"os"
	"path/filepath"
	"testing"
)

//go:embed disk/disk.c
var diskSource []byte

// Disk makes the disk of a server full: from Fill to Free, a server that was
// started with its Env finds no space left for certain files. It works for
// programs that write through the C library; programs in Go do not.
type Disk struct{ shim, flag, part string }

// NewDisk builds the library that a server has to load. Files whose path
// contains part cannot be written while the disk is full. It needs a C
// compiler.
func NewDisk(t testing.TB, part string) *Disk {
	t.Helper()
	// The server may run as another user than the test.
	dir, err := os.MkdirTemp("", "holdfast-disk-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &Disk{shim: preload(t, dir, "disk", diskSource), flag: filepath.Join(dir, "full"), part: part}
}

// Env returns the environment for [Spec] and for the options of servers.
func (d *Disk) Env() []string {
	return []string{"LD_PRELOAD=" + d.shim, "HOLDFAST_FULL=" + d.flag, "HOLDFAST_FULL_PATH=" + d.part}
}

// Fill leaves no space.
func (d *Disk) Fill(t testing.TB) {
	t.Helper()
	if err := os.WriteFile(d.flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Free makes space again.
func (d *Disk) Free(t testing.TB) {
	t.Helper()
	if err := os.Remove(d.flag); err != nil {
		t.Fatal(err)
	}
}
