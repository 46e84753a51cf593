package sqlitelock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// Beside a database x.db there is the folder x.db-wake, and in it a file for
// each client that listens, named by its address: 32 hexadecimal digits that
// nobody had before. To tell a client that a ticket of its was granted, the
// one who granted it appends a line to the client's file, after its
// transaction was committed:
//
//	h <token> <id>    held
//	g <id>            gone: broken by an operator
//	?                 ask for all your tickets
//
// The client has the file locked as long as it lives. A file that can be
// locked by somebody else belongs to nobody any more, and is removed.

const addressLen = 32

// folder is where the clients' files are.
func (d *Driver) folder() string { return d.path + "-wake" }

// isAddress says whether s is the name of a client's file. Addresses come out
// of the database, and must not lead anywhere else.
func isAddress(s string) bool {
	if len(s) != addressLen {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// address is where this client listens, empty when it does not.
func (d *Driver) address() string {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
		return w.address
	}
	return ""
}

// tell delivers pushes. It runs in the worker, after the commit.
func (d *Driver) tell(pushes []sqlline.Push) {
	if len(pushes) == 0 {
		return
	}
	w := d.watch.Load()
	for _, p := range pushes {
		if w != nil && p.Wake == w.address {
			if w.ctx.Err() == nil {
				w.moved(p.ID, p.Place)
			}
		} else if isAddress(p.Wake) {
			d.ring(p)
		}
	}
}

// ring tells a client in another process, or with another driver. A client
// that has no file is gone; one that could not be told asks by itself.
func (d *Driver) ring(p sqlline.Push) {
	f, err := os.OpenFile(filepath.Join(d.folder(), p.Wake), appendFlags, 0)
	if err != nil {
		return
	}
	_, _ = f.Write(encodePush(p.ID, p.Place))
	_ = f.Close()
}

// lost tells the client that it may have missed a push.
func (d *Driver) lost() {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
		w.moved("", driver.Place{})
	}
}

// encodePush returns the line that tells of a push.
func encodePush(id string, p driver.Place) []byte {
	if id == "" || len(id) > 1024 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return []byte("?\n") // the core makes no such id
	}
	if p.State == driver.Held {
		return []byte("h " + strconv.FormatUint(p.Token, 10) + " " + id + "\n")
	}
	return []byte("g " + id + "\n")
}

// decodePush reads a line, without its end. What it does not understand means
// that something was missed.
func decodePush(line string) (id string, p driver.Place, ok bool) {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "h":
		number, id, _ := strings.Cut(rest, " ")
		token, err := strconv.ParseUint(number, 10, 63)
		p = driver.Place{State: driver.Held, Token: token}
		if err == nil && token > 0 && string(encodePush(id, p)) == line+"\n" {
			return id, p, true
		}
	case "g":
		p = driver.Place{State: driver.Gone}
		if string(encodePush(rest, p)) == line+"\n" {
			return rest, p, true
		}
	}
	return "", driver.Place{}, false
}

// Watch implements [driver.Driver]. Where the system has no more file
// notifications to give, the client looks at its file a hundred times a
// second instead.
func (d *Driver) Watch(ctx context.Context, moved func(id string, p driver.Place)) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return driver.ErrClosed
	}
	if d.watch.Load() != nil {
		return driver.Errorf(driver.Refused, "the driver is watched already")
	}
	w, err := d.listen(ctx, moved)
	if err != nil {
		return driver.Wrap(driver.Unavailable, err)
	}
	d.watch.Store(w)
	return nil
}

// mailbox makes a client's file and locks it.
func (d *Driver) mailbox() (f *os.File, address string, err error) {
	dirMode, mode := d.modes()
	for range 100 {
		if err := makeFolder(d.folder(), dirMode); err != nil {
			return nil, "", err
		}
		d.clearFolder()
		var random [addressLen / 2]byte
		_, _ = rand.Read(random[:])
		address = hex.EncodeToString(random[:])
		f, err = openMailbox(filepath.Join(d.folder(), address), mode)
		if err == nil {
			return f, address, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errTaken) {
			return nil, "", err
		}
		// Somebody removed the folder or the file, taking it for a dead one.
	}
	return nil, "", err
}

var errTaken = errors.New("the file was taken by somebody who cleans up")

// openMailbox makes the file of a client at path and locks it.
func openMailbox(path string, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	err = f.Chmod(mode) // whatever the umask is
	if err == nil && !own(f) {
		err = errTaken
	}
	var info os.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err == nil && unlinked(info) {
		err = errTaken
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// modes are those of the folder and of the files in it: who may use the
// database may tell its clients.
func (d *Driver) modes() (dir, file fs.FileMode) {
	file = 0o600
	if info, err := os.Stat(d.path); err == nil {
		file |= info.Mode().Perm() & 0o066
	}
	return file | 0o100 | (file&0o044)>>2, file
}

func makeFolder(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Lstat(path)
		if err == nil && !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: errors.New("there is something else of this name")}
		}
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// clearFolder removes the files of clients that do not live any more, as far
// as a look at a thousand of them goes.
func (d *Driver) clearFolder() {
	dir, err := os.Open(d.folder())
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(1000)
	_ = dir.Close()
	for _, name := range names {
		if !isAddress(name) {
			continue
		}
		path := filepath.Join(d.folder(), name)
		f, err := os.OpenFile(path, appendFlags, 0)
		if err != nil {
			continue
		}
		if own(f) {
			_ = os.Remove(path)
		}
		_ = f.Close()
	}
}
