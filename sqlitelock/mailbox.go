package sqlitelock

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// mailbox creates a client's file and locks it.
func (b beside) mailbox() (f *os.File, address string, err error) {
	for range 100 {
		address = newAddress()
		f, err = b.mailboxAt(address, true)
		if err == nil {
			return f, address, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errTaken) {
			return nil, "", err
		}
		// Another client removed the folder or the file, taking it for that of
		// a dead client.
	}
	return nil, "", err
}

// newAddress returns a fresh random address.
func newAddress() string {
	var random [addressLen / 2]byte
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

var errTaken = errors.New("another client removed the new file while cleaning up")

// mailboxAt creates the file of the client at address and locks it. With clear,
// it first removes the files of dead clients.
func (b beside) mailboxAt(address string, clear bool) (*os.File, error) {
	folder, err := b.makeFolder()
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	if clear {
		clearFolder(folder)
	}
	_, mode := b.modes()
	f, err := openIn(folder, address, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	b.giveToUsers(f)
	err = f.Chmod(mode) // independent of the umask
	var mine bool
	if err == nil {
		mine, err = lockExclusive(f)
	}
	var info os.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err == nil && (!mine || unlinked(info)) {
		err = errTaken
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// makeFolder opens the folder of the clients' files, and creates it if it is
// missing. It gives an existing folder to the users of the database, because
// root may have created it.
func (b beside) makeFolder() (*os.File, error) {
	path := b.folder()
	mode, _ := b.modes()
	err := os.Mkdir(path, mode)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err == nil && b.opt.afterCreate != nil {
		(*b.opt.afterCreate)()
	}
	f, err := openFolder(path)
	if errors.Is(err, fs.ErrPermission) && os.Remove(path) == nil {
		// The folder was empty: its creator was killed before giving it away.
		if err = os.Mkdir(path, mode); err == nil || errors.Is(err, fs.ErrExist) {
			f, err = openFolder(path)
		}
	}
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("the path exists and is no directory")}
	case err != nil:
		return nil, err
	}
	b.giveAccess(f, mode)
	return f, nil
}

// clearFolder removes the files of dead clients. It examines at most a thousand
// files.
func clearFolder(folder *os.File) {
	names, _ := folder.Readdirnames(1000)
	for _, name := range names {
		if !isAddress(name) {
			continue
		}
		f, err := openIn(folder, name, appendFlags, 0)
		if err != nil {
			continue
		}
		if dead, err := lockExclusive(f); dead && err == nil {
			removeIn(folder, name)
		}
		_ = f.Close()
	}
}
