package sqlitelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// fileSystem is where a file lies.
type fileSystem struct {
	name   string
	shared bool   // other machines may reach the files
	free   uint64 // bytes
	files  uint64 // that may still be made
}

// fileSystemOf looks at the file system that dir is on.
func fileSystemOf(dir string) (fileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fileSystem{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return fileSystem{
		name:   unix.ByteSliceToString(st.Fstypename[:]),
		shared: st.Flags&unix.MNT_LOCAL == 0,
		free:   st.Bavail * uint64(st.Bsize),
		files:  st.Ffree,
	}, nil
}
