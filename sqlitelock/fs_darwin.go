package sqlitelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// fileSystem describes the file system of a file.
type fileSystem struct {
	name    string
	shared  bool   // other machines may reach the files
	unknown bool   // always false: the system reports which are local
	free    uint64 // bytes
	files   uint64 // the number that can still be created
}

// mounted reports whether the file at path is a mount point. On this system
// only folders can be.
func mounted(string) bool { return false }

// fileSystemOf returns the file system of the file or folder at path.
func fileSystemOf(path string) (fileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fileSystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return fileSystem{
		name:   unix.ByteSliceToString(st.Fstypename[:]),
		shared: st.Flags&unix.MNT_LOCAL == 0,
		free:   st.Bavail * uint64(st.Bsize),
		files:  st.Ffree,
	}, nil
}
