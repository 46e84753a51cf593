package sqlitelock

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Beside a database x.db there is the folder x.db-wake. It has a file for each
// client that listens, named by the client's address: 32 random hexadecimal
// digits. A client that grants or removes another client's ticket appends a
// line to the other's file, after its transaction was committed:
//
//	h <token> <id>    held
//	g <id>            gone: broken by an operator
//	?                 a gap: renew all tickets
//
// The client keeps its file locked as long as it lives. A file that another
// process can lock belongs to a dead client, and is removed.

const addressLen = 32

// folder returns the path of the folder with the clients' files.
func (b beside) folder() string { return b.path + "-wake" }

// isAddress reports whether s is the name of a client's file. Addresses are
// read from the database, and must not lead outside the folder.
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

// address returns the address at which this client listens, empty if it does
// not listen.
func (d *Driver) address() string {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
		return w.address
	}
	return ""
}

// deliver delivers pushes. It runs in the worker, after the commit.
func (d *Driver) deliver(pushes []sqlqueue.Push) {
	if len(pushes) == 0 {
		return
	}
	w := d.watch.Load()
	for _, p := range pushes {
		if w != nil && p.Wake == w.address {
			if w.ctx.Err() == nil {
				w.notify(p.ID, p.Status)
			}
		} else if isAddress(p.Wake) {
			d.beside.appendPush(p)
		}
	}
}

// appendPush notifies a client of another process or driver. A client without a
// file is gone; a client that could not be notified learns of the push when it
// renews.
func (b beside) appendPush(p sqlqueue.Push) {
	folder, err := openFolder(b.folder())
	if err != nil {
		return
	}
	defer func() { _ = folder.Close() }()
	f, err := openIn(folder, p.Wake, appendFlags, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if checkOwn(f) == nil {
		_, _ = f.Write(encodePush(p.ID, p.Status))
	}
}

// reportGap notifies the client of a gap in its pushes.
func (d *Driver) reportGap() {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
		w.notify("", driver.Status{})
	}
}

// encodePush returns the line of a push.
func encodePush(id string, p driver.Status) []byte {
	if id == "" || len(id) > 1024 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return []byte("?\n") // the core makes no such id
	}
	if p.State == driver.Held {
		return []byte("h " + strconv.FormatUint(p.Token, 10) + " " + id + "\n")
	}
	return []byte("g " + id + "\n")
}

// decodePush parses a line, without its newline. A line that it cannot parse
// means that a push was lost.
func decodePush(text string) (id string, p driver.Status, ok bool) {
	kind, rest, _ := strings.Cut(text, " ")
	switch kind {
	case "h":
		number, id, _ := strings.Cut(rest, " ")
		token, err := strconv.ParseUint(number, 10, 63)
		p = driver.Status{State: driver.Held, Token: token}
		if err == nil && token > 0 && string(encodePush(id, p)) == text+"\n" {
			return id, p, true
		}
	case "g":
		p = driver.Status{State: driver.Gone}
		if string(encodePush(rest, p)) == text+"\n" {
			return rest, p, true
		}
	}
	return "", driver.Status{}, false
}

// Watch implements [driver.Driver]. If the system has no file notifications
// left, the client reads its file a hundred times a second instead.
func (d *Driver) Watch(ctx context.Context, moved func(id string, p driver.Status)) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return driver.ErrClosed
	}
	if d.watch.Load() != nil {
		return driver.Errorf(driver.Refused, "Watch was called before")
	}
	w, err := d.listen(ctx, moved)
	if err != nil {
		return driver.Wrap(driver.Unavailable, err)
	}
	d.watch.Store(w)
	return nil
}
