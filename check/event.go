package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// What says what an [Event] tells.
type What string

// What clients tell. Each is written before the call that it announces, or
// after the one that it reports.
const (
	Ask    What = "ask"    // a call that takes a lock begins
	Wait   What = "wait"   // it has a place in line and waits
	Got    What = "got"    // it returned with a hold
	Failed What = "failed" // it returned without one
	Still  What = "still"  // the hold's claim was renewed
	Told   What = "told"   // the context of the hold ended with a loss
	Notice What = "notice" // the observer was told of a loss
	Out    What = "out"    // Unlock begins
	Done   What = "done"   // Unlock returned
	Pulse  What = "pulse"  // the process lives; Gap is how long it did not
	Upset  What = "upset"  // a background request failed
)

// What the resource and the one who runs the test tell.
const (
	Read    What = "read"    // the register was read by a hold
	Write   What = "write"   // the register was written by a hold, or refused it
	Fault   What = "fault"   // a fault begins
	Heal    What = "heal"    // it ends
	Gone    What = "gone"    // a process has ended; nothing more comes from it
	Probe   What = "probe"   // a fresh process took the name, after the last heal
	Stuck   What = "stuck"   // somebody still waits who should not
	Residue What = "residue" // the store has something that it should not
)

// Store is the process of an [Event] that tells of a fault of the store itself,
// which disturbs all.
const Store = -1

// Event is one line of a history. Which fields count depends on What. Times are
// those of [Now], in nanoseconds.
type Event struct {
	T    int64 `json:"t"`
	What What  `json:"e"`

	P int   `json:"p"`           // the process
	K int   `json:"k,omitempty"` // its life, from 0: a process that was killed is started again
	G int   `json:"g,omitempty"` // the goroutine in it
	N int64 `json:"n,omitempty"` // the call, counted from 1 in each life

	Name  string `json:"name,omitempty"`
	Units int64  `json:"units,omitempty"` // what the call asks for
	Limit int64  `json:"limit,omitempty"` // what the line has
	Try   bool   `json:"try,omitempty"`   // it does not wait
	Bound bool   `json:"bound,omitempty"` // its context ends at some time
	In    int64  `json:"in,omitempty"`    // the call in whose hold it is nested
	Alone bool   `json:"alone,omitempty"` // no other goroutine of the process uses the name

	Token uint64 `json:"tok,omitempty"`
	End   int64  `json:"end,omitempty"` // of the hold's claim
	Err   string `json:"err,omitempty"` // the class of an error; empty for none
	Text  string `json:"text,omitempty"`
	Gap   int64  `json:"gap,omitempty"`  // how long the process did not run, or a probe took
	Value int64  `json:"val,omitempty"`  // of the register
	Twin  int64  `json:"twin,omitempty"` // of the register's twin
	OK    bool   `json:"ok,omitempty"`   // the register accepted
}

// Writer writes events as JSON, one object a line and one write each: a process
// that is killed leaves whole lines, and a call whose end is missing is one
// whose outcome is unknown.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf bytes.Buffer
}

// NewWriter returns a Writer to w, which should not buffer.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write stamps e with the time and writes it. The times of one Writer never go
// back: the clock is read in the order in which the lines are written. It
// returns the time, and the error of the write.
func (w *Writer) Write(e Event) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.T = Now()
	return e.T, w.put(e)
}

// Copy writes e as it is.
func (w *Writer) Copy(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.put(e)
}

func (w *Writer) put(e Event) error {
	w.buf.Reset()
	if err := json.NewEncoder(&w.buf).Encode(e); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	_, err := w.w.Write(w.buf.Bytes())
	return err
}
