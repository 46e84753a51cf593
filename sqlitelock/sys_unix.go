//go:build unix

package sqlitelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileID identifies a file on this machine, under any name.
func fileID(info os.FileInfo) string {
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%x:%x", st.Dev, st.Ino)
}

// unlinked reports whether an open file no longer has a name.
func unlinked(info os.FileInfo) bool {
	return info.Sys().(*syscall.Stat_t).Nlink == 0
}

// writable returns an error if this process may not read and write a file.
func writable(path string) error {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
}

// lockExclusive takes an exclusive lock on f. The process keeps the lock until
// it ends, in whatever way: a locked file belongs to a live process. It returns
// false if another lock excludes this one.
func lockExclusive(f *os.File) (bool, error) { return flock(f, unix.LOCK_EX) }

// lockShared takes a shared lock on f. It returns false if an exclusive lock
// excludes it.
func lockShared(f *os.File) (bool, error) { return flock(f, unix.LOCK_SH) }

// flock takes a lock on f without waiting. It returns false if another lock
// excludes it; every other failure is an error.
func flock(f *os.File, how int) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// linkCount returns the number of names of a file.
func linkCount(info os.FileInfo) uint64 {
	return uint64(info.Sys().(*syscall.Stat_t).Nlink)
}

// giveTo gives an open file or folder to the owner and group of like, as far as
// this process may.
func giveTo(f *os.File, like os.FileInfo) {
	info, err := f.Stat()
	if err != nil {
		return
	}
	is, want := info.Sys().(*syscall.Stat_t), like.Sys().(*syscall.Stat_t)
	switch {
	case is.Uid == want.Uid && is.Gid == want.Gid:
	case os.Geteuid() == 0:
		_ = f.Chown(int(want.Uid), int(want.Gid))
	case is.Gid != want.Gid:
		_ = f.Chown(-1, int(want.Gid))
	}
}

// openFolder opens the folder at path, and does not follow a link there.
func openFolder(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// openIn opens a file in an open folder, even if the folder has moved.
func openIn(folder *os.File, name string, flags int, mode fs.FileMode) (*os.File, error) {
	path := filepath.Join(folder.Name(), name)
	for {
		fd, err := unix.Openat(int(folder.Fd()), name, flags|unix.O_CLOEXEC, uint32(mode.Perm()))
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case !errors.Is(err, unix.EINTR):
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// removeIn removes a file from an open folder.
func removeIn(folder *os.File, name string) {
	_ = unix.Unlinkat(int(folder.Fd()), name, 0)
}

// usersFlags are the flags for opening a file that anybody may have put there,
// see appendFlags.
const usersFlags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK

// appendFlags are the flags for appending to a file that anybody may have put
// there: links are not followed, and opening a pipe does not wait for its
// reader.
const appendFlags = os.O_WRONLY | os.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK
