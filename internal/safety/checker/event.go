package checker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// A What is the kind of an [Event].
type What string

// The events of clients. A client writes an event before the call that it
// announces, or after the call that it reports.
const (
	Ask    What = "ask"    // a call that takes a lock begins
	Wait   What = "wait"   // the call has a place in the queue and waits
	Got    What = "got"    // the call returned with a hold
	Failed What = "failed" // the call returned without a hold
	Still  What = "still"  // the hold's claim was renewed
	Told   What = "told"   // the context of the hold ended with a loss
	Notice What = "notice" // the observer was notified of a loss
	Stop   What = "stop"   // the client itself ended the hold while its function ran; Err names the reason
	Out    What = "out"    // the function that the lock protects has returned; Unlock begins
	Done   What = "done"   // Unlock returned
	Pulse  What = "pulse"  // the process is alive; Gap is the time in which it did not run
	Upset  What = "upset"  // a background request failed
)

// The events of the resource and of the process that runs the test.
const (
	Read    What = "read"    // a hold read the register
	Write   What = "write"   // a hold wrote to the register, or was refused
	Fault   What = "fault"   // a fault begins
	Heal    What = "heal"    // a fault ends
	Gone    What = "gone"    // a process has ended, and sends nothing more
	Probe   What = "probe"   // a fresh process took the name, after the last heal
	Stuck   What = "stuck"   // a client still waits that should not
	Residue What = "residue" // the store has a ticket or a name that it should not have
)

// Store is the process of an [Event] about a fault of the store itself, which
// disturbs all.
const Store = -1

// Event is one line of a history. The field What determines the fields in use.
// Times are those of [Now], in nanoseconds.
type Event struct {
	T    int64 `json:"t"`
	What What  `json:"e"`

	P int   `json:"p"`           // the process
	K int   `json:"k,omitempty"` // its life, from 0: a killed process is started again
	G int   `json:"g,omitempty"` // the goroutine in the process
	N int64 `json:"n,omitempty"` // the number of the call, from 1 in each life

	Name  string `json:"name,omitempty"`
	Units int64  `json:"units,omitempty"` // of the call
	Limit int64  `json:"limit,omitempty"` // of the lock
	Try   bool   `json:"try,omitempty"`   // the call does not wait
	Bound bool   `json:"bound,omitempty"` // the call's context ends at some time
	In    int64  `json:"in,omitempty"`    // the call in whose hold it is nested
	Alone bool   `json:"alone,omitempty"` // no other goroutine of the process uses the name

	Token uint64 `json:"tok,omitempty"`
	End   int64  `json:"end,omitempty"` // the end of the hold's claim
	Err   string `json:"err,omitempty"` // the class of an error; empty for none
	Text  string `json:"text,omitempty"`
	Gap   int64  `json:"gap,omitempty"`  // the time in which the process did not run, or that a probe took
	Value int64  `json:"val,omitempty"`  // the register's value
	Twin  int64  `json:"twin,omitempty"` // the value of the register's twin
	OK    bool   `json:"ok,omitempty"`   // the register accepted
}

// Writer writes events as JSON, one object a line and one write each. A killed
// process leaves whole lines, and a call without an end has an unknown outcome.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf bytes.Buffer
}

// NewWriter returns a Writer to w, which should not buffer.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write stamps e with the time and writes it. The times of one Writer never go
// back: the clock is read in the order in which the lines are written. Write
// returns the time, and the error of the write.
func (w *Writer) Write(e Event) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.T = Now()
	return e.T, w.put(e)
}

// Copy writes e unchanged.
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
