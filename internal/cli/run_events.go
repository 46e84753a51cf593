//go:build unix

package cli

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/cli/job"
)

// eventJSON is one event of run, a line of its output with --json.
type eventJSON struct {
	Event  string      `json:"event"` // waiting, acquired, started, stopping, killing, suspended, unguarded, unreleased, campaigning, done, unrecorded, exit
	Time   time.Time   `json:"time"`
	Name   string      `json:"name"`
	Holder *holderJSON `json:"holder,omitempty"`         // waiting, done: elsewhere
	Token  uint64      `json:"token,omitempty"`          // acquired, done
	Slot   *time.Time  `json:"slot,omitempty"`           // done, unrecorded
	At     *time.Time  `json:"at,omitempty"`             // done: when the command ended
	Waited *float64    `json:"waited_seconds,omitempty"` // acquired
	PID    int         `json:"pid,omitempty"`            // started
	Left   *float64    `json:"left_seconds,omitempty"`   // stopping, killing, suspended
	Status *int        `json:"status,omitempty"`         // exit
	Signal int         `json:"signal,omitempty"`         // exit
	By     string      `json:"by,omitempty"`             // exit: command, holdfast; stopping, killing: guard
	Reason string      `json:"reason,omitempty"`
	Error  string      `json:"error,omitempty"`
}

// event writes an event, with --json.
func (r *runner) event(e eventJSON) {
	if r.console.json {
		e.Time, e.Name = time.Now(), r.name
		r.console.errJSON(e)
	}
}

// say writes an event with --json, and the text without.
func (r *runner) say(e eventJSON, text string) {
	if r.console.json {
		r.event(e)
		return
	}
	fmt.Fprintf(r.console.stderr(), "holdfast: %s\n", text)
}

// notice reports an event of the command.
func (r *runner) notice(n job.Notice) {
	e := eventJSON{Event: string(n.Kind), PID: n.PID, Reason: string(n.Reason)}
	if n.Kind == job.Started {
		r.event(e)
		return
	}
	if n.Kind != job.Unguarded {
		e.Left = new(seconds(n.Left))
	}
	name, left := shown(r.name), formatDuration(max(0, n.Left))
	why := fmt.Sprintf("lock %s is in doubt, its lease ends in %s%s", name, left, r.lastRenewalError())
	switch n.Reason {
	case job.Expired:
		why = fmt.Sprintf("lock %s is lost", name)
	case job.MaxDuration:
		why = fmt.Sprintf("lock %s may be held for %v at most", name, r.maxHold)
	}
	switch n.Kind {
	case job.Stopping:
		r.say(e, why+": stopping the command")
	case job.Killing:
		r.say(e, why+": killing the command")
	case job.Suspended:
		r.say(e, fmt.Sprintf("stopped; lock %s is not renewed meanwhile, and the command is ended if this lasts longer than %s",
			name, formatDuration(max(0, n.Left-n.Grace))))
	case job.Unguarded:
		r.say(e, "the process that guards the command has ended: if holdfast is killed now, the command may run on")
	}
}
