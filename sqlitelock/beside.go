package sqlitelock

import (
	"io/fs"
	"os"

	"github.com/holdfast-go/holdfast/driver"
)

// beside is the place beside a database, where its files of the users and of
// clients are.
type beside struct {
	path string // of the database
	opt  *Options
}

// modes returns the modes of the wake folder and of the files beside the
// database: every user of the database may notify its clients.
func (b beside) modes() (dir, file fs.FileMode) {
	file = 0o600
	if info, err := os.Stat(b.path); err == nil {
		file |= info.Mode().Perm() & 0o066
	}
	return file | 0o100 | (file&0o044)>>2, file
}

// giveAccess gives all users of the database access to an open file or folder
// beside it, as far as this process may.
func (b beside) giveAccess(f *os.File, mode fs.FileMode) {
	if info, err := f.Stat(); err == nil && info.Mode().Perm() != mode {
		_ = f.Chmod(mode) // fails if another user owns it
	}
	b.giveToUsers(f)
}

// giveToUsers gives an open file or folder to the users of the database. Root
// gives it to the database's owner, as SQLite does with its journal; another
// user gives it to the group, where that is permitted.
func (b beside) giveToUsers(f *os.File) {
	if info, err := os.Stat(b.path); err == nil {
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
