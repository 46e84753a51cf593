//go:build unix

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/lockserver"
)

// auditEntry is an object of the audit file.
type auditEntry struct {
	Time       time.Time `json:"time"`
	Event      string    `json:"event"`
	Server     string    `json:"server"`
	Principal  string    `json:"principal,omitempty"`
	Remote     string    `json:"remote,omitempty"`
	Name       string    `json:"name,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Token      uint64    `json:"token,omitempty"` // the fencing token
	ID         string    `json:"hashed_id,omitempty"`
	Ticket     string    `json:"ticket,omitempty"`
	Owner      string    `json:"owner,omitempty"`
	WaitedMS   *int64    `json:"waited_ms,omitempty"`
	HeldMS     *int64    `json:"held_ms,omitempty"`
	Code       string    `json:"code,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Suppressed int       `json:"suppressed,omitempty"` // refusals before this one that have no object
	Dropped    int       `json:"dropped,omitempty"`    // objects that could not be written
}

// Bounds of an audit.
const (
	auditQueue  = 10_000 // entries that wait for the file
	deniedBurst = 100    // refusals that are written at once
	deniedEvery = 100 * time.Millisecond
)

// auditFile is an open file; a test has another.
type auditFile interface {
	io.WriteCloser
	Sync() error
}

// auditLog appends to a file, on a goroutine of its own. A file that takes nothing
// costs entries, which are counted, and no request waits for it but a break.
type auditLog struct {
	path    string
	name    string // of the server
	log     *slog.Logger
	entries chan auditRequest
	ended   chan struct{}
	end     sync.Once
	stop    chan struct{}

	mu      sync.Mutex
	dropped int // not yet reported
	total   int // dropped since the start
	denied  denials

	// The goroutine has the rest.
	file    auditFile
	partial bool // the last write ended within an object
	failing bool
}

// auditRequest is an entry, or another file.
type auditRequest struct {
	entry   auditEntry
	file    auditFile  // to write to from now on, or nil
	written chan error // receives the outcome, unless it is nil; has room for it
}

// denials allows a number of refusals in a time.
type denials struct {
	tokens     float64
	last       time.Time
	suppressed int
}

// openAudit opens a file to append to, which it makes if there is none.
func openAudit(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// newAudit starts to write to an open file. Close ends it.
func newAudit(path, server string, file auditFile, log *slog.Logger) *auditLog {
	a := &auditLog{
		path: path, name: server, log: log, file: file,
		entries: make(chan auditRequest, auditQueue), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go a.run()
	return a
}

// close writes what is waiting, and closes the file.
func (a *auditLog) close() {
	a.end.Do(func() { close(a.stop) })
	<-a.ended
}

func (a *auditLog) run() {
	defer close(a.ended)
	for {
		select {
		case r := <-a.entries:
			a.handle(r)
		case <-a.stop:
			for {
				select {
				case r := <-a.entries:
					a.handle(r)
				default:
					_ = a.file.Close()
					return
				}
			}
		}
	}
}

func (a *auditLog) handle(r auditRequest) {
	if r.file != nil {
		_ = a.file.Close()
		a.file, a.partial = r.file, false
		return
	}
	err := a.write(r.entry)
	if err == nil && r.written != nil {
		err = a.file.Sync()
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
			err = nil // a pipe or a device
		}
	}
	if r.written != nil {
		r.written <- err
	}
	switch {
	case err != nil && !a.failing:
		a.log.Error("the audit cannot be written: entries are dropped, and breaks refused", "file", a.path, "error", err)
	case err == nil && a.failing:
		a.log.Info("the audit is written again", "file", a.path)
	}
	a.failing = err != nil
}

// write writes an entry, and before it how many were dropped.
func (a *auditLog) write(e auditEntry) error {
	a.mu.Lock()
	dropped := a.dropped
	a.mu.Unlock()
	if dropped > 0 {
		if err := a.append(auditEntry{Time: time.Now().UTC(), Event: "dropped", Server: a.name, Dropped: dropped}); err != nil {
			a.drop(1)
			return err
		}
		a.mu.Lock()
		a.dropped -= dropped
		a.mu.Unlock()
	}
	if err := a.append(e); err != nil {
		a.drop(1)
		return err
	}
	return nil
}

func (a *auditLog) append(e auditEntry) error {
	text := auditText(e)
	if a.partial {
		text = append([]byte{'\n'}, text...)
	}
	n, err := a.file.Write(text)
	if n > 0 {
		a.partial = n < len(text)
	}
	return err
}

// auditText returns an entry as one object a line. Characters that change how others
// look, such as marks of direction, are escaped, too.
func auditText(e auditEntry) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		b = []byte(`{"event":"internal"}`) // cannot happen: no field fails
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case unicode.IsPrint(r) && r != utf8.RuneError:
			out.Write(b[:n])
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		b = b[n:]
	}
	return append([]byte(out.String()), '\n')
}

func (a *auditLog) drop(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropped += n
	a.total += n
}

// allDropped returns how many entries were dropped since the start.
func (a *auditLog) allDropped() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return uint64(a.total)
}

// add hands an entry over, or drops it if the file is too slow.
func (a *auditLog) add(e auditEntry) {
	e.Time, e.Server = time.Now().UTC(), a.name
	select {
	case a.entries <- auditRequest{entry: e}:
	default:
		a.drop(1)
	}
}

// addNow writes an entry before it returns.
func (a *auditLog) addNow(e auditEntry) error {
	e.Time, e.Server = time.Now().UTC(), a.name
	written := make(chan error, 1)
	select {
	case a.entries <- auditRequest{entry: e, written: written}:
	default:
		a.drop(1)
		return errors.New("audit: the file is too slow")
	}
	select {
	case err := <-written:
		return err
	case <-time.After(ioTimeout):
		return errors.New("audit: the file is too slow")
	}
}

// reopen opens the file anew. After an error the old one stays in use.
func (a *auditLog) reopen() error {
	file, err := openAudit(a.path)
	if err != nil {
		return err
	}
	select {
	case a.entries <- auditRequest{file: file}:
		return nil
	default:
		_ = file.Close()
		return fmt.Errorf("audit %s: the file is too slow to be changed", a.path)
	}
}

// hold is the field Hold of lockserver.Events.
func (a *auditLog) hold(h lockserver.HoldInfo) {
	e := auditEntry{
		Event: string(h.Event), Principal: h.Principal, Remote: h.Remote, Name: h.Name, Kind: h.Kind,
		Token: h.Token, ID: h.HashedID, Reason: h.Reason,
	}
	if h.Event == lockserver.HoldGranted {
		e.WaitedMS = milliseconds(h.Waited)
	} else if h.Event != lockserver.HoldResumed {
		e.HeldMS = milliseconds(h.Held)
	}
	a.add(e)
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// deny is the field Denied of lockserver.Events. A flood of refusals is counted, so
// that it neither fills the disk nor hides the rest.
func (a *auditLog) deny(d lockserver.DeniedInfo) {
	suppressed, ok := a.allow(time.Now())
	if !ok {
		return
	}
	e := auditEntry{Event: "denied", Principal: d.Principal, Remote: d.Remote, Code: d.Code, Suppressed: suppressed}
	if d.Err != nil {
		e.Reason = d.Err.Error()
	}
	a.add(e)
}

// allow reports whether a refusal is written, and how many before it were not.
func (a *auditLog) allow(now time.Time) (suppressed int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := &a.denied
	if d.last.IsZero() {
		d.tokens = deniedBurst
	} else {
		d.tokens = min(deniedBurst, d.tokens+float64(now.Sub(d.last))/float64(deniedEvery))
	}
	d.last = now
	if d.tokens < 1 {
		d.suppressed++
		return 0, false
	}
	d.tokens--
	suppressed, d.suppressed = d.suppressed, 0
	return suppressed, true
}

// breaks is the field Break of lockserver.Events: a break that cannot be written is
// refused.
func (a *auditLog) breaks(b lockserver.BreakInfo) error {
	return a.addNow(auditEntry{
		Event: "break", Principal: b.Principal, Remote: b.Remote, Name: b.Name, Ticket: b.Ticket, Owner: b.Owner,
	})
}
