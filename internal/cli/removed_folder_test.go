//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRemovedWorkingFolder checks that a store whose URL has no relative path needs
// no working folder, and that another one tells what it needs.
func TestRemovedWorkingFolder(t *testing.T) {
	url := sqlite(t)
	dir := filepath.Join(t.TempDir(), "removed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	there := func(args ...string) result {
		p := command(t, args...)
		p.cmd.Dir = "" // that of this process
		return p.start().end()
	}
	there(sh(url, "m", "echo in")...).want(t, 0, "in\n", "")
	there("--store", "postgres://127.0.0.1:1/x?sslmode=disable", "ls").want(t, exitUnavailable, "", "127.0.0.1:1")
	there(sh("sqlite:locks.db", "m", "echo in")...).want(t, exitUnavailable, "", "the working folder: ")
}
