//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/cli/job"
)

// slotOfPeriod returns the slot that now is in: of a day, week or month in local
// time, or of a duration below a day in UTC. The last seconds before a slot count
// for it, as for [holdfast.Slot].
func slotOfPeriod(period string, now time.Time) (time.Time, error) {
	const early = 10 * time.Second
	y, m, d := now.Add(early).Date()
	switch period {
	case "day":
		return time.Date(y, m, d, 0, 0, 0, 0, now.Location()), nil
	case "week":
		sinceMonday := (int(now.Add(early).Weekday()) + 6) % 7
		return time.Date(y, m, d-sinceMonday, 0, 0, 0, 0, now.Location()), nil
	case "month":
		return time.Date(y, m, 1, 0, 0, 0, 0, now.Location()), nil
	}
	every, err := time.ParseDuration(period)
	if err != nil || every <= 0 || every >= 24*time.Hour {
		return time.Time{}, usage("--once-per %s is neither day, week or month nor a duration below 24h", printable(period))
	}
	return holdfast.Slot(now, every), nil
}

// checkOnce checks --once-per and --slot, and sets the slot.
func (r *runner) checkOnce(slotGiven bool) (err error) {
	switch {
	case r.oncePer == "" && slotGiven:
		return usage("--slot needs --once-per")
	case r.oncePer == "":
		return nil
	}
	if r.slot, err = slotOfPeriod(r.oncePer, time.Now()); err != nil || !slotGiven {
		return err
	}
	if r.slot, err = time.Parse(time.RFC3339, r.slotText); err != nil {
		return usage("--slot %s is not a time as in RFC 3339: 2026-11-23T02:00:00Z", printable(r.slotText))
	}
	return nil
}

// onceRun is the command of a run with --once-per, and its end.
type onceRun struct {
	r           *runner
	ran         bool
	leftOpen    bool // the command did not do the slot
	res         job.Result
	err, over   error // of the command, and of the lock when the command had ended
	acquireStop func()
}

// executeOnce runs the command for a slot, unless the slot is done.
func (r *runner) executeOnce() error {
	defer r.close()
	w := r.beginWait()
	defer w.end()
	ctx := w.ctx
	if err := r.openStore(ctx); err != nil {
		w.show.end()
		return r.failedWait(err)
	}
	once := r.client.Once
	if r.noWait {
		once = r.client.TryOnce
	}
	o := onceRun{r: r}
	o.acquireStop = func() { w.show.end(); w.stopSignals() } // the signals are the command's now
	done, err := once(ctx, r.name, r.slot, o.command)
	if o.ran {
		return o.outcome(done, err)
	}
	w.show.end()
	switch {
	case err == nil:
		return r.doneElsewhere(done)
	case r.noWait && ctx.Err() != nil:
		return r.failedWait(r.timeoutError(ctx, err))
	}
	return r.failedWait(explain(cause(ctx, err)))
}

// command runs the command in a slot. Its error says whether the slot is done.
func (o *onceRun) command(ctx context.Context) error {
	hold, err := o.r.client.Mutex(o.r.name).TryLock(ctx) // nested: it sends nothing
	if err != nil {
		return errors.Join(holdfast.ErrNotDone, err)
	}
	o.ran = true
	o.acquireStop()
	o.r.event(eventJSON{Event: "acquired", Token: hold.Token(), Waited: new(seconds(time.Since(o.r.startedAt)))})
	env := append(o.r.environment(hold, os.Environ()), "HOLDFAST_SLOT="+o.r.slot.Format(time.RFC3339Nano))
	o.res, o.err = o.r.job(hold, env).Run()
	o.over = hold.Err() // read at the instant at which the command had ended
	_ = hold.Unlock()
	if o.err != nil || o.over != nil || o.res.Stopped != "" || o.res.Code() == exitNotAcquired {
		o.leftOpen = true
		return holdfast.ErrNotDone
	}
	return nil
}

// outcome turns the end of the command, and of its slot, into the end of the
// process.
func (o *onceRun) outcome(done holdfast.Done, err error) error {
	recorded, lost := !errors.Is(err, holdfast.ErrNotDone), errors.Is(err, holdfast.ErrLost)
	e := eventJSON{Event: "done", Slot: new(done.Slot), Token: done.Token, At: new(done.At)}
	switch {
	case recorded && err == nil:
		o.r.event(e)
	case recorded:
		e.Error = message(err)
		o.r.say(e, fmt.Sprintf("slot %s is recorded, but the lock was lost before its release, so another run may have begun beside this one: %s",
			slotText(done.Slot), message(err)))
	case o.over == nil && lost:
		o.over = err
	case !o.leftOpen:
		o.r.say(eventJSON{Event: "unrecorded", Slot: new(done.Slot), Error: message(err)},
			fmt.Sprintf("slot %s is not recorded, so another run may repeat it: %s", slotText(done.Slot), message(err)))
	}
	return o.r.outcome(o.res, o.err, o.over, nil)
}

// doneElsewhere ends a run whose slot another one has done. Standard error is told
// only if it is a terminal: cron would send a mail. Of a slot that nobody may have done
// it is always told.
func (r *runner) doneElsewhere(done holdfast.Done) error {
	status := exitOK
	if r.console.json {
		e := eventJSON{Event: "done", Slot: new(done.Slot), Holder: holderToJSON(done.By), Token: done.Token}
		if !done.At.IsZero() {
			e.At = new(done.At)
		}
		if done.TooOld {
			e.Reason = "too old"
		}
		r.event(e)
		r.event(eventJSON{Event: "exit", Status: &status, By: "holdfast", Reason: "done"})
		return exitWith(status)
	}
	if done.TooOld {
		fmt.Fprintf(r.console.stderr(), "holdfast: %s: slot %s is older than all slots that the store remembers, and counts as done\n",
			shown(r.name), slotText(done.Slot))
		return exitWith(status)
	}
	if f, ok := r.console.stderr().(*os.File); ok && term.IsTerminal(int(f.Fd())) && !r.console.quiet {
		fmt.Fprintf(f, "holdfast: %s is done for %s\n", shown(r.name), doneText(done))
	}
	return exitWith(status)
}

// slotText returns a slot in local time, with a fraction of a second if it has one.
func slotText(slot time.Time) string { return slot.Local().Format(time.RFC3339Nano) }

// doneText returns a slot, and by whom and when it was done.
func doneText(d holdfast.Done) string {
	s := slotText(d.Slot)
	if d.By != (holdfast.Holder{}) {
		s += " by " + holderText(d.By)
	}
	if !d.At.IsZero() {
		s += " at " + d.At.Local().Format(time.RFC3339)
	}
	return s
}

// doneJSON is a slot that is done, in JSON.
type doneJSON struct {
	Slot   time.Time   `json:"slot"`
	At     time.Time   `json:"at"`
	Token  uint64      `json:"token"`
	Holder *holderJSON `json:"holder,omitempty"`
}

// lastDone returns the slot of a lock that was recorded last, or nil: nobody used
// --once-per, or the store keeps no slots.
func lastDone(ctx context.Context, c *holdfast.Client, name string) (*holdfast.Done, error) {
	if !c.Traits().Marks {
		return nil, nil
	}
	d, err := c.LastDone(ctx, name)
	if err != nil || d.Slot.IsZero() {
		return nil, err
	}
	return &d, nil
}
