//go:build unix

package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestSlotsOfPeriods checks the slots of days, weeks and months in local time,
// also where a day has 23 or 25 hours, and of durations in UTC.
func TestSlotsOfPeriods(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		berlin = time.FixedZone("", 3600) // a system without zones
	}
	for _, c := range []struct{ period, now, want string }{
		{"day", "2026-11-23T01:30:00", "2026-11-23T00:00:00"},
		{"day", "2026-11-22T23:59:50", "2026-11-23T00:00:00"},
		{"day", "2026-03-29T04:00:00", "2026-03-29T00:00:00"},
		{"day", "2026-10-25T12:00:00", "2026-10-25T00:00:00"},
		{"week", "2026-11-29T23:59:49", "2026-11-23T00:00:00"},
		{"week", "2026-11-29T23:59:50", "2026-11-30T00:00:00"},
		{"week", "2026-12-01T00:00:00", "2026-11-30T00:00:00"},
		{"month", "2026-11-30T23:59:49", "2026-11-01T00:00:00"},
		{"month", "2026-12-31T23:59:50", "2027-01-01T00:00:00"},
		{"1h", "2026-11-23T01:30:00", "2026-11-23T01:00:00"},
	} {
		at := func(s string) time.Time {
			u, err := time.ParseInLocation("2006-01-02T15:04:05", s, berlin)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		if got, err := slotOfPeriod(c.period, at(c.now)); err != nil || !got.Equal(at(c.want)) {
			t.Errorf("--once-per %s at %s: %v, %v; want %s", c.period, c.now, got, err, c.want)
		}
	}
	for _, period := range []string{"x", "24h", "0", "-1h", "year"} {
		if slot, err := slotOfPeriod(period, time.Now()); statusOf(err) != exitUsage {
			t.Errorf("--once-per %s: %v, %v", period, slot, err)
		}
	}
}

// TestOncePerRunsACommandOnce checks that the second run of a slot exits with 0
// and says nothing, that another slot runs, that the command knows its slot, and
// that show has the last one.
func TestOncePerRunsACommandOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		job := "job-" + rand.Text() // stores outlast a run of the test
		slot := "--once-per day --slot 2026-11-23T00:00:00Z " + job
		run(t, sh(url, slot, `echo "slot $HOLDFAST_SLOT"; exit 3`)...).want(t, 3, "slot 2026-11-23T00:00:00Z", "")
		run(t, sh(url, slot, "echo again")...).want(t, 0, "", "")
		r := run(t, append([]string{"--json"}, sh(url, slot, "echo again")...)...).want(t, 0, "", "")
		var events []string
		for _, e := range objects(t, r.err) {
			events = append(events, e["event"].(string))
			if e["event"] == "done" && (e["slot"] != "2026-11-23T00:00:00Z" || e["holder"] == nil) {
				t.Errorf("done: %v", e)
			}
		}
		if got := strings.Join(events, " "); got != "done exit" {
			t.Errorf("events %q", got)
		}
		run(t, "--store", url, "show", job).want(t, 0, "last slot: ", "")
		run(t, "--store", url, "show", "--json", job).want(t, 0, `"last_done"`, "")
		run(t, sh(url, "--once-per day --slot 2026-11-24T00:00:00Z "+job, "echo next")...).want(t, 0, "next", "")
	})
}

// TestOncePerTellsTheWholeSlot checks that two slots of one second are told apart
// where a slot is shown: the command's environment, and show.
func TestOncePerTellsTheWholeSlot(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	slot := "--once-per 100ms --slot 2026-11-23T00:00:00.25Z job"
	run(t, sh(url, slot, `echo "slot $HOLDFAST_SLOT"`)...).want(t, 0, "slot 2026-11-23T00:00:00.25Z", "")
	run(t, "--store", url, "show", "job").want(t, 0, ":00.25", "")
}

// TestOncePerTellsATerminal checks that a run whose slot is done says so on a terminal, in
// one line with the machine and the time, and that it does not with -q.
func TestOncePerTellsATerminal(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	const slot = "--once-per day --slot 2026-11-23T00:00:00Z job"
	run(t, sh(url, "--note first "+slot, "true")...).want(t, 0, "", "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	p := command(t, sh(url, slot, "echo again")...)
	s := p.onScreen(24, 200)
	s.expect("holdfast: job is done for ", 1)
	p.wait()
	if shown := s.shows(); strings.Count(shown, "\n") != 1 || !strings.Contains(shown, " on "+host+" ") || !strings.Contains(shown, " at ") || strings.Contains(shown, "again") {
		t.Errorf("the terminal shows %q", shown)
	}
	q := command(t, sh(url, "-q "+slot, "echo again")...)
	s = q.onScreen(24, 200)
	q.wait()
	if shown := s.shows(); shown != "" {
		t.Errorf("with -q the terminal shows %q", shown)
	}
}

// TestOncePerStatus75LeavesTheSlotOpen checks that a command that ends with 75, or
// cannot be run, leaves its slot to the next run, and that --no-wait says that
// the job runs.
func TestOncePerStatus75LeavesTheSlotOpen(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	const slot = "--once-per 1h --slot 2026-11-23T12:00:00Z job"
	run(t, sh(url, slot, "exit 75")...).want(t, 75, "", "")
	p := start(t, sh(url, slot, `echo in; `+untilStop)...).says("out", "in\n")
	run(t, sh(url, "--no-wait "+slot, "echo again")...).want(t, 75, "", "held by")
	waiter := start(t, sh(url, slot, "echo again")...).says("err", "waiting for job")
	p.touch("stop")
	p.end().want(t, 0, "in\n", "")
	if r := waiter.end().want(t, 0, "", ""); strings.Contains(r.out, "again") {
		t.Errorf("a run that waited ran the slot again: %q", r.out)
	}
}

// TestOncePerRefusesBadFlags checks that each combination that makes no sense is
// refused with 64.
func TestOncePerRefusesBadFlags(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	for flags, want := range map[string]string{
		"--once-per day --lead":       "cannot be given together",
		"--once-per day --shared":     "cannot be given together",
		"--once-per day --exclusive":  "cannot be given together",
		"--once-per day --slots 2":    "cannot be given together",
		"--once-per day --owner o":    "cannot be given together",
		"--once-per year":             "--once-per year",
		"--once-per 48h":              "below 24h",
		"--once-per day --slot noon":  "RFC 3339",
		"--once-per day --slot=":      "--slot is empty",
		"--once-per=":                 "--once-per is empty",
		"--slot 2026-11-23T12:00:00Z": "needs --once-per",
	} {
		run(t, sh(url, flags+" job", "true")...).want(t, 64, "", want)
	}
}

// TestOncePerSaysWhatIsNotRecorded checks the end of a command whose slot could
// not be recorded: its status stays, and standard error tells.
func TestOncePerSaysWhatIsNotRecorded(t *testing.T) {
	var errs strings.Builder
	root := new(cobra.Command)
	root.SetErr(&errs)
	r := &runner{app: &app{console: console{root: root}}, name: "job"}
	o := &onceRun{r: r, ran: true}
	err := o.outcome(holdfast.Done{Slot: time.Unix(0, 0)},
		errors.Join(holdfast.ErrNotDone, &holdfast.StoreError{Op: "once", Name: "job", Err: errors.New("no rights")}))
	if statusOf(err) != exitOK || !strings.Contains(errs.String(), "is not recorded") || !strings.Contains(errs.String(), "no rights") {
		t.Errorf("status %d, %q", statusOf(err), errs.String())
	}
	lost := &holdfast.LostError{Name: "job", Reason: holdfast.LossGone}
	if err := o.outcome(holdfast.Done{}, errors.Join(holdfast.ErrNotDone, lost)); statusOf(err) != exitLost {
		t.Errorf("after a loss: status %d, %v", statusOf(err), err)
	}
	o = &onceRun{r: r, ran: true, leftOpen: true}
	errs.Reset()
	if err := o.outcome(holdfast.Done{}, holdfast.ErrNotDone); statusOf(err) != exitOK || errs.Len() > 0 {
		t.Errorf("a slot that the command left open: status %d, %q", statusOf(err), errs.String())
	}
	if err := o.outcome(holdfast.Done{}, errors.Join(holdfast.ErrNotDone, lost)); statusOf(err) != exitLost {
		t.Errorf("a slot that the command left open, after a loss: status %d, %v", statusOf(err), err)
	}
}

// silentStore is a store that pushes nothing.
type silentStore struct{ *memlock.Driver }

func (silentStore) Watch(ctx context.Context, _ func(string, driver.Status)) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestOncePerWhoseLockIsGone checks the end of a command whose lock an operator broke
// when it had all but ended, so that only the release finds it: the slot is recorded, so
// the status is the command's, and standard error tells of the loss.
func TestOncePerWhoseLockIsGone(t *testing.T) {
	c, err := holdfast.New(silentStore{memlock.New(memlock.NewStore())})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	slot := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	done, err := c.Once(t.Context(), "job", slot, func(context.Context) error {
		i, err := c.Inspect(t.Context(), "job")
		if err != nil || len(i.Holders) != 1 {
			t.Fatalf("%+v, %v", i, err)
		}
		return c.Break(t.Context(), "job", i.Holders[0].ID)
	})
	if last, lastErr := c.LastDone(t.Context(), "job"); lastErr != nil || !last.Slot.Equal(slot) || !errors.Is(err, holdfast.ErrLost) {
		t.Fatalf("%+v, %v; the call returned %v", last, lastErr, err)
	}
	for _, asJSON := range []bool{false, true} {
		var errs strings.Builder
		root := new(cobra.Command)
		root.SetErr(&errs)
		r := &runner{app: &app{console: console{root: root, json: asJSON}}, name: "job"}
		if end := (&onceRun{r: r, ran: true}).outcome(done, err); statusOf(end) != exitOK {
			t.Errorf("status %d, %v", statusOf(end), end)
		}
		if !asJSON {
			if !strings.Contains(errs.String(), "is recorded, but the lock was lost before its release") || !strings.Contains(errs.String(), "gone from the store") {
				t.Errorf("it said %q", errs.String())
			}
			continue
		}
		all := objects(t, errs.String())
		if len(all) != 2 || all[0]["event"] != "done" || !strings.Contains(fmt.Sprint(all[0]["error"]), "gone from the store") || all[1]["status"] != 0.0 || all[1]["by"] != "command" {
			t.Errorf("events %v", all)
		}
	}
}

// TestOncePerTellsOfASlotThatIsTooOld checks that a run whose slot is older than all that
// the store remembers says so where cron reads it, as nobody may have done it.
func TestOncePerTellsOfASlotThatIsTooOld(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	c := open(t, url)
	first := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range 64 {
		if _, err := c.Once(t.Context(), "job", first.Add(time.Duration(i)*time.Hour), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	const slot = "--once-per 1h --slot 2026-10-31T23:00:00Z job"
	r := run(t, sh(url, slot, "echo ran")...).want(t, 0, "", "job: slot ")
	if !strings.Contains(r.err, "older than all slots") || r.out != "" {
		t.Errorf("it said %q, and printed %q", r.err, r.out)
	}
	r = run(t, append([]string{"--json"}, sh(url, slot, "echo ran")...)...).want(t, 0, "", "")
	if all := objects(t, r.err); len(all) != 2 || all[0]["event"] != "done" || all[0]["reason"] != "too old" || all[1]["event"] != "exit" {
		t.Errorf("events %v", all)
	}
	run(t, sh(url, "--once-per 1h --slot 2026-11-01T00:00:00Z job", "echo ran")...).want(t, 0, "", "")
}

// TestOnceTellsTheServer checks that show and a late run tell of the server that did a
// slot on behalf of a process which nobody knows, in words and in JSON.
func TestOnceTellsTheServer(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	c := open(t, url, holdfast.WithHolder(holdfast.Holder{Via: "gate"}))
	slot := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	if _, err := c.Once(t.Context(), "job", slot, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	run(t, "--store", url, "show", "job").want(t, 0, " by a process via gate", "")
	r := run(t, "--store", url, "show", "--json", "job").want(t, 0, "", "")
	if all := objects(t, r.out); len(all) != 1 || all[0]["last_done"].(map[string]any)["holder"].(map[string]any)["via"] != "gate" {
		t.Errorf("show: %v", all)
	}
	r = run(t, append([]string{"--json"}, sh(url, "--once-per 1h --slot 2026-11-23T00:00:00Z job", "echo ran")...)...).want(t, 0, "", "")
	if all := objects(t, r.err); len(all) != 2 || all[0]["holder"].(map[string]any)["via"] != "gate" {
		t.Errorf("run: %v", all)
	}
}

// TestShowTellsOfADamagedRecord checks that show does not hide a record of slots that it
// cannot read.
func TestShowTellsOfADamagedRecord(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	run(t, sh(url, "--once-per day job", "true")...).want(t, 0, "", "")
	d, err := anylock.OpenDriver(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.(driver.Marker).SetMark(t.Context(), "job", driver.Mark{Token: driver.MaxToken, Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	run(t, "--store", url, "show", "job").want(t, 0, "last slot: unreadable: ", "")
	r := run(t, "--store", url, "show", "--json", "job").want(t, 0, "", "")
	if all := objects(t, r.out); len(all) != 1 || all[0]["last_done"] != nil || !strings.Contains(fmt.Sprint(all[0]["last_done_error"]), "damaged") {
		t.Errorf("%v", all)
	}
}
