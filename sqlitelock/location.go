package sqlitelock

import (
	"fmt"
	"os"
)

// checkLocation returns the reason why SQLite cannot work on the existing file
// at path, which contains no symbolic links. SQLite's journal lies beside the
// file and has its name. A file with two names has two journals, and users of
// one name do not see the commits to the other's journal.
func (o *Options) checkLocation(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if n := linkCount(info); n > 1 {
		return fmt.Errorf("%s is one of %d names (hard links) of its file, each with a journal of its own: "+
			"locks taken by one are not seen by the others; remove all but one", path, n)
	}
	if mounted(path) {
		return fmt.Errorf("%s is a mount point: its journal lies in another folder than that of the file's other paths, "+
			"and locks taken there are not seen here; mount the file's folder instead", path)
	}
	where, err := fileSystemOf(path)
	if err != nil {
		return err
	}
	return o.accept(path, where)
}
