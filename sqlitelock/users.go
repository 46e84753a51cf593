package sqlitelock

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Beside a database x.db there is the file x.db-open. Every open driver has a
// shared lock on it, and its content is the start of the machine that those
// drivers see. A driver that sees another start learns from the lock which of
// two things happened. Either the machine was restarted, which ends all locks
// on files; or processes with another boot id are at work: those of a container
// that has an id of its own, or another clock.
//
// A driver takes its lock in a transaction that writes to the database. The
// file remains when the last driver is closed: removing it would be a race.

// users is a driver's membership in the file of the users.
type users struct {
	beside beside
	file   *os.File // nil unless the driver is one of them
}

// usersPath returns the path of that file.
func (b beside) usersPath() string { return b.path + "-open" }

// join makes the driver one of the file's users. It fails if the others
// see another start of the machine.
func (u *users) join(boot string) error {
	if u.joined() {
		return nil
	}
	u.leave()
	f, err := u.beside.openUsers()
	if errors.Is(err, fs.ErrPermission) {
		return driver.Errorf(driver.Refused, "this user may not use the file beside the database: %w; "+
			"give it the database's owner, group and mode", err)
	}
	if err != nil {
		return driver.Wrap(driver.Unavailable, err)
	}
	if err = register(f, boot); err == nil {
		u.file = f
		if !u.joined() { // the file was removed meanwhile
			err = errBusy
		}
	}
	if err != nil {
		u.file = nil
		_ = f.Close()
	}
	return err
}

// joined reports whether the driver is one of the file's users, and the file is
// the one that others find.
func (u *users) joined() bool {
	if u.file == nil {
		return false
	}
	own, err := u.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(u.beside.usersPath())
	return err == nil && os.SameFile(own, there)
}

// leave undoes join.
func (u *users) leave() {
	if u.file != nil {
		_ = u.file.Close()
		u.file = nil
	}
}

// openUsers opens the file of the users, and creates it if it is missing.
func (b beside) openUsers() (*os.File, error) {
	path := b.usersPath()
	f, err := os.OpenFile(path, usersFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return b.makeUsers()
	}
	if err != nil {
		return nil, err
	}
	if err := checkOwn(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	_, mode := b.modes()
	b.giveAccess(f, mode)
	return f, nil
}

// makeUsers creates the file of the users. The file receives its name only when
// all users of the database may open it, so a process that is killed before
// that does no harm. The transaction around the call keeps other processes from
// creating the file.
func (b beside) makeUsers() (*os.File, error) {
	b.clearUsers()
	_, mode := b.modes()
	path := b.usersPath() + "-" + newAddress()
	f, err := os.OpenFile(path, usersFlags|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	if b.opt.afterCreate != nil {
		(*b.opt.afterCreate)()
	}
	_ = f.Chmod(mode) // independent of the umask
	b.giveToUsers(f)
	if err := os.Rename(path, b.usersPath()); err != nil {
		_ = f.Close()
		_ = os.Remove(path)
		return nil, err
	}
	return f, nil
}

// clearUsers removes the files of processes that were killed in makeUsers.
func (b beside) clearUsers() {
	dir := filepath.Dir(b.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if random, ok := strings.CutPrefix(e.Name(), filepath.Base(b.usersPath())+"-"); ok && isAddress(random) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// register takes the shared lock on f if the other drivers that have it see the
// same start of the machine, or if there are none.
func register(f *os.File, boot string) error {
	alone, err := lockExclusive(f)
	if err != nil {
		return driver.Wrap(driver.Unavailable, err)
	}
	if alone {
		if err := f.Truncate(0); err != nil {
			return driver.Wrap(driver.Unavailable, err)
		}
		if _, err := f.WriteAt([]byte(boot), 0); err != nil {
			return driver.Wrap(driver.Unavailable, err)
		}
	}
	switch shared, err := lockShared(f); {
	case err != nil:
		return driver.Wrap(driver.Unavailable, err)
	case !shared:
		return errBusy
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1024))
	if err != nil {
		return driver.Wrap(driver.Unavailable, err)
	}
	if theirs := string(b); theirs != boot {
		return foreignBoot(theirs, boot)
	}
	return nil
}

func foreignBoot(theirs, boot string) error {
	kernel, _, _ := strings.Cut(boot, " ")
	was, _, _ := strings.Cut(theirs, " ")
	if kernel == was {
		return driver.Errorf(driver.Refused, "the file is in use from another time namespace, which has a different clock")
	}
	return driver.Errorf(driver.Refused, "the file is in use by processes with another boot id (%s, here %s): "+
		"a container may have one of its own; give all users of the file the same /proc/sys/kernel/random/boot_id", was, kernel)
}
