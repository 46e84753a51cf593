//go:build unix

package lockauth

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkWriters returns an error if others than the file's owner may write the file,
// or put another in its place.
func checkWriters(path string, info fs.FileInfo) error {
	if err := checkOwner(path, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("lockauth: %s can be written by others than its owner (mode %04o): chmod go-w", path, info.Mode().Perm())
	}
	dir := filepath.Dir(path)
	folder, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("lockauth: %w", err)
	}
	if folder.Mode().Perm()&0o022 != 0 && folder.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("lockauth: the folder of %s can be written by others than its owner (mode %04o): chmod go-w", path, folder.Mode().Perm())
	}
	return nil
}

// checkOwner returns an error unless a file belongs to this process's user or root.
func checkOwner(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 || int(st.Uid) == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("lockauth: %s belongs to user %d, who is neither root nor the user of this process", path, st.Uid)
}
