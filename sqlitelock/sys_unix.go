//go:build unix

package sqlitelock

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileID names a file on this machine, whatever it is called.
func fileID(info os.FileInfo) string {
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%x:%x", st.Dev, st.Ino)
}

// unlinked says whether an open file has no name any more.
func unlinked(info os.FileInfo) bool {
	return info.Sys().(*syscall.Stat_t).Nlink == 0
}

// writable says why this process may not read and write a file.
func writable(path string) error {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
}

// own says that this process lives, as long as f is open: it takes the lock on
// f that a process keeps until it ends, however that happens. It returns false
// if somebody has the lock.
func own(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// appendFlags open a file that may have been put there by anybody: links are
// not followed, and nothing waits for the reader of a pipe.
const appendFlags = os.O_WRONLY | os.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK
