package sqlitelock

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-go/holdfast/driver"
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

// modes returns the modes of the wake folder and of the files beside the
// database: every user of the database may notify its clients.
func (d *Driver) modes() (dir, file fs.FileMode) {
	file = 0o600
	if info, err := os.Stat(d.path); err == nil {
		file |= info.Mode().Perm() & 0o066
	}
	return file | 0o100 | (file&0o044)>>2, file
}

// giveAccess gives all users of the database access to an open file or folder
// beside it, as far as this process may.
func (d *Driver) giveAccess(f *os.File, mode fs.FileMode) {
	if info, err := f.Stat(); err == nil && info.Mode().Perm() != mode {
		_ = f.Chmod(mode) // fails if another user owns it
	}
	d.giveToUsers(f)
}

// giveToUsers gives an open file or folder to the users of the database. Root
// gives it to the database's owner, as SQLite does with its journal; another
// user gives it to the group, where that is permitted.
func (d *Driver) giveToUsers(f *os.File) {
	if info, err := os.Stat(d.path); err == nil {
		giveTo(f, info)
	}
}

// checkOwn returns an error if a file found beside the database is not one of
// Holdfast's. Somebody may have linked another file under that name, and root
// must neither write to it nor give it away.
func checkOwn(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return driver.Errorf(driver.Refused, "%s: not a regular file; remove it", f.Name())
	}
	if n := linkCount(info); n > 1 {
		return driver.Errorf(driver.Refused, "%s: the file has %d names (hard links); remove this one", f.Name(), n)
	}
	return nil
}
