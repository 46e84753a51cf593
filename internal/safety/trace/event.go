package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Version is the version of the form of events.
const Version = 1

// Kind is the kind of an event.
type Kind string

// The kinds. Each is an action of module Trace. The first are methods of [driver.Driver],
// and the last what the core told its user, and what has reached the core.
const (
	Traits  Kind = "traits"
	Join    Kind = "join"
	Renew   Kind = "renew"
	Leave   Kind = "leave"
	Watch   Kind = "watch"
	Inspect Kind = "inspect"
	Names   Kind = "names"
	Break   Kind = "break"
	Close   Kind = "close"

	Push Kind = "push" // the store reported a grant or a removal
	Gap  Kind = "gap"  // the subscription had a gap
	Step Kind = "step" // the store's clock was set

	LockDone Kind = "lockdone" // the Observer was told that a call returns a hold
	Got      Kind = "got"      // the call has returned it
	Out      Kind = "out"      // the user is about to unlock it
	Told     Kind = "told"     // its context has ended with a loss
	HoldDone Kind = "holddone" // the Observer was told that it has ended
	Failed   Kind = "failed"   // the Observer was told that a call returns no hold

	Heard Kind = "heard" // a push about a ticket has reached the client
	Ended Kind = "ended" // the client has closed, and says that it has left all its places
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{Traits, Join, Renew, Leave, Watch, Inspect, Names, Break, Close, Push, Gap, Step, LockDone, Got, Out, Told, HoldDone, Failed, Heard, Ended}
}

// Event is one request with its answer, a push, a step of the store's clock, or what the
// core told its user: of that the token is the core's.
// Times are in nanoseconds of the store's clock. A zero field is not written.
type Event struct {
	Version int    `json:"v"`
	Kind    Kind   `json:"e"`
	Seed    uint64 `json:"seed"`           // of the run
	Seq     int64  `json:"seq"`            // in the store's order, from 1
	Client  int    `json:"p,omitempty"`    // from 1; 0 for a step of the clock
	Name    string `json:"name,omitempty"` // of the lock; the prefix of names
	At      int64  `json:"t"`              // since the trace began
	Took    int64  `json:"took,omitempty"` // until the answer; of a recorder for servers alone

	// The request.
	ID       string `json:"id,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Units    int64  `json:"units,omitempty"`
	Limit    int64  `json:"limit,omitempty"`
	TTL      int64  `json:"ttl,omitempty"`
	MinToken uint64 `json:"floor,omitempty"`
	Wait     bool   `json:"wait,omitempty"`
	Pending  bool   `json:"pending,omitempty"` // Ref.JoinPending
	Replaces string `json:"repl,omitempty"`
	Step     int64  `json:"step,omitempty"`

	// The answer.
	State   string   `json:"state,omitempty"`
	Token   uint64   `json:"token,omitempty"`
	Lease   int64    `json:"lease,omitempty"`
	Ahead   int      `json:"ahead,omitempty"`
	Err     string   `json:"err,omitempty"` // the class of the error, or the end of a hold
	Text    string   `json:"text,omitempty"`
	Sent    int64    `json:"sent,omitempty"`    // from the sending to At; of an answer that the client heard
	Heard   int64    `json:"heard,omitempty"`   // from At until the client heard the answer; 0: it did not
	Tickets []Entry  `json:"tickets,omitempty"` // of inspect
	Found   []string `json:"found,omitempty"`   // of names
	Traits  string   `json:"traits,omitempty"`

	Hold   int   `json:"hold,omitempty"`   // the number of a hold in the run
	Waited int64 `json:"waited,omitempty"` // how long a call that failed has waited

	deaf int // bits of the clients that may have no connection for pushes; see noteDeaf
}

// Entry is a ticket in the answer of inspect.
type Entry struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Token uint64 `json:"token,omitempty"`
	Left  int64  `json:"left"`
}

// Write writes events, one JSON object in a line.
func Write(w io.Writer, events []Event) error {
	e := json.NewEncoder(w)
	for i := range events {
		if err := e.Encode(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what [Write] wrote. An unknown field, kind or version is an error.
func Read(r io.Reader) ([]Event, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	var all []Event
	for {
		var e Event
		err := d.Decode(&e)
		if err == io.EOF {
			return all, nil
		}
		if err == nil {
			err = e.check()
		}
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", len(all)+1, err)
		}
		all = append(all, e)
	}
}

func (e *Event) check() error {
	if e.Version != Version {
		return fmt.Errorf("its version is %d, not %d", e.Version, Version)
	}
	for _, k := range Kinds() {
		if e.Kind == k {
			return nil
		}
	}
	return fmt.Errorf("%q is no event", e.Kind)
}

// String returns the event as it is written, in one line.
func (e Event) String() string {
	var b bytes.Buffer
	if err := Write(&b, []Event{e}); err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// request notes what t asks for.
func (e *Event) request(t *driver.Ticket) {
	e.Name, e.ID, e.Owner = t.Name, t.ID, t.Owner
	e.Units, e.Limit, e.TTL, e.MinToken = t.Units, t.Limit, int64(t.TTL), t.MinToken
	if t.Replaces != nil {
		e.Replaces = t.Replaces.ID
	}
}

// answer notes what was answered.
func (e *Event) answer(s driver.Status, err error) {
	if err == nil {
		err = s.Err
	}
	if err != nil {
		e.fail(err)
		return
	}
	e.State, e.Token, e.Lease = s.State.String(), s.Token, int64(s.Lease)
	if s.State == driver.Waiting {
		e.Ahead = s.Ahead
	}
}

func (e *Event) fail(err error) {
	if err != nil {
		e.Err, e.Text = driver.ClassOf(err).String(), err.Error()
	}
}

// ttl returns the TTL of the request.
func (e *Event) ttl() time.Duration { return time.Duration(e.TTL) }
