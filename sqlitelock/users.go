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

// usersPath returns the path of that file.
func (d *Driver) usersPath() string { return d.path + "-open" }

// joinUsers makes the driver one of the file's users. It fails if the others
// see another start of the machine.
func (d *Driver) joinUsers(boot string) error {
	if d.isUser() {
		return nil
	}
	d.leaveUsers()
	f, err := d.openUsers()
	if errors.Is(err, fs.ErrPermission) {
		return driver.Errorf(driver.Refused, "this user may not use the file beside the database: %w; "+
			"give it the database's owner, group and mode", err)
	}
	if err != nil {
		return driver.Wrap(driver.Unavailable, err)
	}
	if err = register(f, boot); err == nil {
		d.users = f
		if !d.isUser() { // the file was removed meanwhile
			err = errBusy
		}
	}
	if err != nil {
		d.users = nil
		_ = f.Close()
	}
	return err
}

// isUser reports whether the driver is one of the file's users, and the file is
// the one that others find.
func (d *Driver) isUser() bool {
	if d.users == nil {
		return false
	}
	own, err := d.users.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(d.usersPath())
	return err == nil && os.SameFile(own, there)
}

// leaveUsers undoes joinUsers.
func (d *Driver) leaveUsers() {
	if d.users != nil {
		_ = d.users.Close()
		d.users = nil
	}
}

// openUsers opens the file of the users, and creates it if it is missing.
func (d *Driver) openUsers() (*os.File, error) {
	path := d.usersPath()
	f, err := os.OpenFile(path, usersFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return d.makeUsers()
	}
	if err != nil {
		return nil, err
	}
	if err := checkOwn(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	_, mode := d.modes()
	d.giveAccess(f, mode)
	return f, nil
}

// makeUsers creates the file of the users. The file receives its name only when
// all users of the database may open it, so a process that is killed before
// that does no harm. The transaction around the call keeps other processes from
// creating the file.
func (d *Driver) makeUsers() (*os.File, error) {
	d.clearUsers()
	_, mode := d.modes()
	path := d.usersPath() + "-" + newAddress()
	f, err := os.OpenFile(path, usersFlags|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	if d.opt.afterCreate != nil {
		(*d.opt.afterCreate)()
	}
	_ = f.Chmod(mode) // independent of the umask
	d.giveToUsers(f)
	if err := os.Rename(path, d.usersPath()); err != nil {
		_ = f.Close()
		_ = os.Remove(path)
		return nil, err
	}
	return f, nil
}

// clearUsers removes the files of processes that were killed in makeUsers.
func (d *Driver) clearUsers() {
	dir := filepath.Dir(d.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if random, ok := strings.CutPrefix(e.Name(), filepath.Base(d.usersPath())+"-"); ok && isAddress(random) {
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
