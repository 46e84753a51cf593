package sqlitelock

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-go/holdfast/driver"
)

// lookEvery is how often a client looks at its file where it cannot have
// notifications.
const lookEvery = 10 * time.Millisecond

// mailboxMax is how long a client's file may get before it is emptied.
const mailboxMax = 1 << 20

// watcher listens to a client's file. Its goroutine owns all but the first
// fields.
type watcher struct {
	ctx     context.Context
	address string
	moved   func(id string, p driver.Place)
	cancel  context.CancelFunc
	ended   chan struct{}

	d      *Driver
	path   string
	file   *os.File
	notify *fsnotify.Watcher // nil: look at the file instead
	off    int64             // read so far
	part   []byte            // of a line that is not complete
}

// listen makes the client's file and begins to read it.
func (d *Driver) listen(ctx context.Context, moved func(string, driver.Place)) (*watcher, error) {
	f, address, err := d.mailbox()
	if err != nil {
		return nil, err
	}
	w := &watcher{d: d, moved: moved, ended: make(chan struct{}), address: address, file: f, path: filepath.Join(d.folder(), address)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.subscribe()
	go w.loop()
	return w, nil
}

// subscribe asks for notifications of the file. There is a limit to how many
// processes of a user can have any; without, the client looks at its file
// every now and then.
func (w *watcher) subscribe() {
	if w.notify == nil && !w.d.opt.noNotify {
		w.notify, _ = newNotifier()
	}
	if w.notify != nil && w.notify.Add(w.path) != nil {
		_ = w.notify.Close()
		w.notify = nil
	}
}

func newNotifier() (*fsnotify.Watcher, error) { return fsnotify.NewWatcher() }

func (w *watcher) loop() {
	defer close(w.ended)
	defer w.release()
	for {
		var events <-chan fsnotify.Event
		var errs <-chan error
		var look <-chan time.Time
		if w.notify != nil {
			events, errs = w.notify.Events, w.notify.Errors
		} else {
			look = time.After(lookEvery)
		}
		select {
		case <-w.ctx.Done():
			return
		case <-events:
		case <-look:
		case <-errs:
			// Too many events at once: some are missing.
			w.moved("", driver.Place{})
		}
		if w.read() && !w.restore() {
			return
		}
	}
}

// read tells what was appended to the file. It returns true if the file has no
// name any more.
func (w *watcher) read() (removed bool) {
	for {
		var buf [4096]byte
		n, err := w.file.ReadAt(buf[:], w.off)
		w.off += int64(n)
		w.part = append(w.part, buf[:n]...)
		for {
			line, rest, ok := bytes.Cut(w.part, []byte("\n"))
			if !ok {
				break
			}
			id, p, _ := decodePush(string(line))
			w.part = rest
			w.moved(id, p)
		}
		if len(w.part) > len(buf) {
			w.part = nil // nobody writes such lines
			w.moved("", driver.Place{})
		}
		if err != nil || n == 0 {
			break
		}
	}
	if w.off > mailboxMax {
		// What is appended between the last read and this is lost.
		_ = w.file.Truncate(0)
		w.off, w.part = 0, nil
		w.moved("", driver.Place{})
	}
	info, err := w.file.Stat()
	return err != nil || unlinked(info)
}

// restore makes the file anew that somebody removed, as soon as that can be
// done. It returns false if the client is closed meanwhile.
func (w *watcher) restore() bool {
	for wait := lookEvery; ; wait = min(2*wait, time.Second) {
		dirMode, mode := w.d.modes()
		err := makeFolder(w.d.folder(), dirMode)
		var f *os.File
		if err == nil {
			f, err = openMailbox(w.path, mode)
		}
		if err == nil {
			_ = w.file.Close()
			w.file, w.off, w.part = f, 0, nil
			w.subscribe()
			w.moved("", driver.Place{})
			return true
		}
		select {
		case <-w.ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// release gives everything back. The file goes, and the folder with the last
// one.
func (w *watcher) release() {
	w.cancel()
	if w.notify != nil {
		_ = w.notify.Close()
	}
	_ = os.Remove(w.path)
	_ = w.file.Close()
	_ = os.Remove(w.d.folder())
}

// close ends the watcher.
func (w *watcher) close() {
	w.cancel()
	<-w.ended
}
