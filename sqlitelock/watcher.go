package sqlitelock

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// pollInterval is the interval between reads of a client's file without
// notifications.
const pollInterval = 10 * time.Millisecond

// mailboxMax is the size of a client's file above which it is emptied.
const mailboxMax = 1 << 20

// watcher reads a client's file. Its goroutine owns all but the first group of
// fields.
type watcher struct {
	ctx     context.Context
	address string
	notify  func(id string, p driver.Status)
	cancel  context.CancelFunc
	ended   chan struct{}

	d        *Driver
	path     string
	file     *os.File
	notifier *fsnotify.Watcher // nil: read the file at intervals
	offset   int64             // number of bytes read
	partial  []byte            // of an incomplete line
}

// listen creates the client's file and starts to read it.
func (d *Driver) listen(ctx context.Context, moved func(string, driver.Status)) (*watcher, error) {
	f, address, err := d.beside.mailbox()
	if err != nil {
		return nil, err
	}
	w := &watcher{d: d, notify: moved, ended: make(chan struct{}), address: address, file: f, path: filepath.Join(d.beside.folder(), address)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.subscribe()
	go w.loop()
	return w, nil
}

// subscribe requests notifications of the file. The system limits their number
// for each user; without notifications the client reads its file at intervals.
func (w *watcher) subscribe() {
	if w.notifier == nil && !w.d.opt.noNotify {
		w.notifier, _ = fsnotify.NewWatcher()
	}
	if w.notifier != nil && w.notifier.Add(w.path) != nil {
		_ = w.notifier.Close()
		w.notifier = nil
	}
}

func (w *watcher) loop() {
	defer close(w.ended)
	defer w.release()
	for {
		var events <-chan fsnotify.Event
		var errs <-chan error
		var poll <-chan time.Time
		if w.notifier != nil {
			events, errs = w.notifier.Events, w.notifier.Errors
		} else {
			poll = time.After(pollInterval)
		}
		select {
		case <-w.ctx.Done():
			return
		case <-events:
		case <-poll:
		case <-errs:
			// The events overflowed: some are missing.
			w.notify("", driver.Status{})
		}
		if w.read() && !w.restore() {
			return
		}
	}
}

// read reports the lines that were appended to the file. It returns true if the
// file no longer has a name.
func (w *watcher) read() (removed bool) {
	for {
		var buf [4096]byte
		n, err := w.file.ReadAt(buf[:], w.offset)
		w.offset += int64(n)
		w.partial = append(w.partial, buf[:n]...)
		for {
			text, rest, ok := bytes.Cut(w.partial, []byte("\n"))
			if !ok {
				break
			}
			id, p, _ := decodePush(string(text))
			w.partial = rest
			w.notify(id, p)
		}
		if len(w.partial) > len(buf) {
			w.partial = nil // no client writes such lines
			w.notify("", driver.Status{})
		}
		if err != nil || n == 0 {
			break
		}
	}
	if w.offset > mailboxMax {
		// A line appended between the last read and Truncate is lost.
		_ = w.file.Truncate(0)
		w.offset, w.partial = 0, nil
		w.notify("", driver.Status{})
	}
	info, err := w.file.Stat()
	return err != nil || unlinked(info)
}

// restore replaces the file after its removal, as soon as possible. It returns
// false if the watcher is closed meanwhile.
func (w *watcher) restore() bool {
	retry := backoff.Backoff{First: pollInterval, Last: time.Second}
	for {
		f, err := w.d.beside.mailboxAt(w.address, false)
		if err == nil {
			_ = w.file.Close()
			w.file, w.offset, w.partial = f, 0, nil
			w.subscribe()
			w.notify("", driver.Status{})
			return true
		}
		if !retry.Wait(w.ctx) {
			return false
		}
	}
}

// release closes and removes the file. It removes the folder with the last
// file.
func (w *watcher) release() {
	w.cancel()
	if w.notifier != nil {
		_ = w.notifier.Close()
	}
	_ = os.Remove(w.path)
	_ = w.file.Close()
	_ = os.Remove(w.d.beside.folder())
}

// close ends the watcher.
func (w *watcher) close() {
	w.cancel()
	<-w.ended
}
