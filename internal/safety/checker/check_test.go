package checker

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = int64(time.Millisecond)

// script is a list of events of one name, with times in milliseconds.
type script []Event

func (s script) at(t int64, p int, n int64, what What, more ...func(*Event)) script {
	e := Event{T: t * ms, P: p, N: n, What: what, Name: "m"}
	if what == Ask {
		e.Units, e.Limit = 1, 1
	}
	for _, f := range more {
		f(&e)
	}
	return append(s, e)
}

func token(n uint64) func(*Event) { return func(e *Event) { e.Token = n } }
func end(t int64) func(*Event)    { return func(e *Event) { e.End = t * ms } }
func text(s string) func(*Event)  { return func(e *Event) { e.Text = s } }
func class(s string) func(*Event) { return func(e *Event) { e.Err = s } }
func alone(e *Event)              { e.Alone = true }
func passed(e *Event)             { e.OK = true }
func value(n int64) func(*Event)  { return func(e *Event) { e.Value = n } }
func shared(e *Event)             { e.Limit = 1 << 30 }
func gap(t int64) func(*Event)    { return func(e *Event) { e.Gap = t * ms } }

// hold adds a call that succeeds.
func (s script) hold(p int, n, ask, got, out int64, tok uint64) script {
	return s.at(ask, p, n, Ask).at(got, p, n, Got, token(tok), end(got+1000)).at(out, p, n, Out, end(out+1000)).at(out+1, p, n, Done)
}

// lost adds a call whose hold is lost.
func (s script) lost(p int, n, got, told int64, tok uint64) script {
	return s.at(got-1, p, n, Ask).at(got, p, n, Got, token(tok), end(got+1000)).
		at(told, p, n, Told, token(tok), text("not renewed in time"), end(got+1000)).
		at(told+1, p, n, Out, class(ErrLost)).at(told+2, p, n, Done, class(ErrLost))
}

var rules = Rules{TTL: time.Second, Fair: true, Tokens: true, Slack: 50 * time.Millisecond, Takes: 2 * time.Second}

// found returns the checks that a history breaks.
func found(events []Event) (checks []string) {
	c := NewChecker(rules)
	for _, e := range events {
		c.Add(e)
		c.judge(0) // windows without knowledge must not disturb
	}
	c.Finish()
	bad, _ := c.Violations()
	for _, v := range bad {
		if !strings.Contains(strings.Join(checks, " "), v.Check) {
			checks = append(checks, v.Check)
		}
		_ = c.Describe(v)
	}
	return checks
}

func TestEachRuleFindsItsViolation(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		history    script
	}{
		{"one after the other", "", script{}.hold(0, 1, 1, 2, 3, 5).hold(1, 1, 1, 4, 6, 6)},
		{"side by side", "C1 C5", script{}.hold(0, 1, 1, 2, 9, 5).hold(1, 1, 1, 4, 6, 6)},
		{"touching", "", script{}.hold(0, 1, 1, 2, 9, 5).hold(1, 1, 1, 9, 12, 6)},
		{"token went back", "C3 C5", script{}.hold(0, 1, 1, 2, 3, 9).hold(1, 1, 5, 6, 7, 8)},
		{"token twice", "C3 C5", script{}.hold(0, 1, 1, 2, 3, 9).hold(1, 1, 1, 6, 7, 9)},
		{"no token", "C3", script{}.hold(0, 1, 1, 2, 3, 0)},
		{"readers together", "", script{}.
			at(1, 0, 1, Ask, shared).at(1, 1, 1, Ask, shared).at(2, 0, 1, Got, token(4), end(900)).at(3, 1, 1, Got, token(4), end(900)).
			at(5, 0, 1, Out).at(6, 0, 1, Done).at(5, 1, 1, Out).at(6, 1, 1, Done)},
		{"a killed holder holds no more", "", script{}.
			at(1, 0, 1, Ask).at(2, 0, 1, Got, token(4), end(900)).at(10, 0, 0, Gone, text("killed")).hold(1, 1, 3, 20, 21, 5)},
		{"killed too late", "C1 C5", script{}.
			at(1, 0, 1, Ask).at(2, 0, 1, Got, token(4), end(900)).hold(1, 1, 3, 20, 21, 5).at(30, 0, 0, Gone, text("killed"))},
		{"who was killed may have had it", "", script{}.
			at(1, 0, 1, Ask).hold(1, 1, 1, 2, 3, 5).at(4, 0, 0, Gone, text("killed")).hold(1, 2, 8, 9, 10, 6)},
		{"lost, and told", "", script{}.lost(0, 1, 2, 1010, 5).at(1011, 0, 0, Notice, token(5)).hold(1, 1, 1, 1005, 1006, 6)},
		{"told late", "C6", script{}.lost(0, 1, 2, 1300, 5).at(1301, 0, 0, Notice, token(5))},
		{"told late by one who was stopped", "", script{}.at(900, 0, 0, Fault, text("pause")).
			lost(0, 1, 2, 1300, 5).at(1290, 0, 0, Heal, text("pause")).at(1301, 0, 0, Notice, token(5))},
		{"told late by one who did not run", "", script{}.at(1300, 0, 0, Pulse, gap(400)).lost(0, 1, 2, 1300, 5).at(1301, 0, 0, Notice, token(5))},
		{"told twice", "C6", script{}.lost(0, 1, 2, 1010, 5).at(1011, 0, 0, Notice, token(5)).at(1012, 0, 0, Notice, token(5))},
		{"told never", "C6", script{}.lost(0, 1, 2, 1010, 5)},
		{"a release told as a loss", "C6", script{}.hold(0, 1, 1, 2, 3, 5).at(4, 0, 0, Notice, token(5))},
		{"told without a reason", "C6", script{}.at(1, 0, 1, Ask).at(2, 0, 1, Got, token(5), end(9)).at(10, 0, 1, Told, token(5), end(9)).
			at(11, 0, 1, Out, class(ErrLost)).at(12, 0, 1, Done, class(ErrLost)).at(13, 0, 0, Notice, token(5))},
		{"lost and released", "C6", script{}.at(1, 0, 1, Ask).at(2, 0, 1, Got, token(5), end(9)).at(10, 0, 1, Out, class(ErrLost)).at(11, 0, 1, Done)},
		{"released long after the claim", "C6", script{}.at(1, 0, 1, Ask).at(2, 0, 1, Got, token(5), end(9)).at(1100, 0, 1, Out).at(1101, 0, 1, Done)},
		{"overtaken", "C4", script{}.
			at(1, 0, 1, Ask, alone).at(2, 0, 1, Wait).
			at(5, 1, 1, Ask, alone).at(6, 1, 1, Got, token(4), end(900)).at(7, 1, 1, Out).at(8, 1, 1, Done).
			at(9, 0, 1, Got, token(5), end(900)).at(10, 0, 1, Out).at(11, 0, 1, Done)},
		{"overtaken while stopped", "", script{}.
			at(1, 0, 1, Ask, alone).at(2, 0, 1, Wait).at(3, 0, 0, Fault, text("pause")).
			at(5, 1, 1, Ask, alone).at(6, 1, 1, Got, token(4), end(900)).at(7, 1, 1, Out).at(8, 1, 1, Done).
			at(8, 0, 0, Heal, text("pause")).at(9, 0, 1, Got, token(5), end(900)).at(10, 0, 1, Out).at(11, 0, 1, Done)},
		{"a write was lost", "C2", script{}.hold(0, 1, 1, 2, 3, 5)[:2].at(2, 0, 1, Write, token(5), passed, value(2)).at(3, 0, 1, Out).at(4, 0, 1, Done)},
		{"an old token passed", "C2", script{}.
			at(1, 0, 1, Ask).at(1, 1, 1, Ask).at(2, 0, 1, Got, token(5), end(9)).at(10, 1, 1, Got, token(6), end(900)).
			at(11, 1, 1, Read, token(6), passed).at(12, 0, 1, Read, token(5), passed).
			at(13, 0, 1, Out, class(ErrLost)).at(14, 0, 1, Done, class(ErrLost)).at(15, 0, 0, Notice, token(5)).
			at(13, 1, 1, Out).at(14, 1, 1, Done)},
		{"a loss that the release found", "", script{}.hold(0, 1, 1, 2, 30, 5)[:3].
			at(31, 0, 1, Done, class(ErrLost)).at(32, 0, 0, Notice, token(5))},
		{"a loss that the release found, told never", "C6", script{}.hold(0, 1, 1, 2, 30, 5)[:3].at(31, 0, 1, Done, class(ErrLost))},
		{"a loss that the release found, told twice", "C6", script{}.hold(0, 1, 1, 2, 30, 5)[:3].
			at(31, 0, 1, Done, class(ErrLost)).at(32, 0, 0, Notice, token(5)).at(33, 0, 0, Notice, token(5))},
		{"closed under its work", "C10", script{}.hold(0, 1, 1, 2, 3, 5)[:2].at(20, 0, 1, Stop, class(ErrClosed)).
			hold(1, 1, 1, 21, 22, 6).at(300, 0, 1, Out, class(ErrClosed)).at(301, 0, 1, Done, class(ErrClosed))},
		{"closed under work that goes on", "C10", script{}.hold(0, 1, 1, 2, 3, 5)[:2].at(20, 0, 1, Stop, class(ErrClosed)).
			hold(1, 1, 1, 21, 22, 6)},
		{"closed, and given back after the work", "", script{}.hold(0, 1, 1, 2, 3, 5)[:2].at(20, 0, 1, Stop, class(ErrClosed)).
			at(300, 0, 1, Out, class(ErrClosed)).at(301, 0, 1, Done, class(ErrClosed)).hold(1, 1, 1, 302, 303, 6)},
		{"closed under its work, which had been lost", "", script{}.hold(0, 1, 1, 2, 3, 5)[:2].
			at(1002, 0, 1, Told, token(5), text("r"), end(1002)).at(1003, 0, 1, Stop, class(ErrClosed)).hold(1, 1, 1, 1050, 1060, 6).
			at(1100, 0, 1, Out, class(ErrLost)).at(1101, 0, 1, Done, class(ErrLost)).at(1102, 0, 0, Notice, token(5))},
		{"closed under its work, and killed", "", script{}.hold(0, 1, 1, 2, 3, 5)[:2].at(20, 0, 1, Stop, class(ErrClosed)).
			at(21, 0, 0, Gone, text("killed")).hold(1, 1, 1, 22, 23, 6)},
		{"a valid hold was refused", "C2", script{}.hold(0, 1, 1, 2, 30, 5)[:2].at(3, 0, 1, Read, token(5)).at(30, 0, 1, Out).at(31, 0, 1, Done)},
		{"a stale hold was refused", "", script{}.lost(0, 1, 2, 1010, 5)[:2].at(1005, 0, 1, Write, token(5)).
			at(1010, 0, 1, Told, token(5), text("r"), end(1002)).at(1011, 0, 1, Out, class(ErrLost)).at(1012, 0, 1, Done, class(ErrLost)).
			at(1013, 0, 0, Notice, token(5))},
		{"held, though it waits", "C9", script{}.at(1, 0, 1, Ask).at(2, 0, 1, Failed, class(ErrHeld))},
		{"its wait ended, though nothing ends it", "C9", script{}.at(1, 0, 1, Ask).at(2, 0, 1, Failed, class(ErrWait))},
		{"refused", "C9", script{}.at(1, 0, 1, Ask).at(2, 0, 1, Failed, class(ErrRefused))},
		{"an error without a class", "C9", script{}.hold(0, 1, 1, 2, 3, 5)[:3].at(4, 0, 1, Done, class(ErrOther))},
		{"the store was away", "", script{}.at(1, 0, 1, Ask).at(2, 0, 1, Failed, class(ErrUnavailable))},
		{"a fresh process", "", script{}.at(1, 3, 0, Probe, gap(1900))},
		{"a fresh process waits long", "C7", script{}.at(1, 3, 0, Probe, gap(2100))},
		{"a fresh process gets nothing", "C7", script{}.at(1, 3, 0, Probe, class(ErrWait))},
		{"a wait with a place ends with the store", "C7", script{}.at(1, 0, 1, Ask).at(2, 0, 1, Wait).at(9, 0, 1, Failed, class(ErrUnknown))},
		{"a wait for the store ends with it", "", script{}.at(1, 0, 1, Ask).at(2, 0, 0, Upset).at(2, 0, 1, Wait).at(9, 0, 1, Failed, class(ErrUnknown))},
		{"somebody waits for ever", "C7", script{}.at(1, 0, 0, Stuck)},
		{"something is left", "C8", script{}.at(1, 0, 0, Residue)},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			got := found(tt.history)
			if strings.Join(got, " ") != tt.want && !sameSet(got, strings.Fields(tt.want)) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func sameSet(a, b []string) bool {
	in := make(map[string]int)
	for _, x := range a {
		in[x]++
	}
	for _, x := range b {
		in[x]--
	}
	for _, n := range in {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestWindowsJudgeAsOnePiece checks that a history judged in windows has the
// verdict of the same history in one piece, and that the Checker forgets what
// no longer matters.
func TestWindowsJudgeAsOnePiece(t *testing.T) {
	c := NewChecker(rules)
	var bad int
	for n := int64(1); n <= 2000; n++ {
		t := 10 * n
		for _, e := range (script{}).hold(0, n, t, t+1, t+5, uint64(2*n)).hold(1, n, t, t+6, t+8, uint64(2*n+1)) {
			if n == 1500 && e.P == 1 && e.What == Got {
				e.T -= 3 * ms // while the other one holds
			}
			c.Add(e)
		}
		if n%50 == 0 {
			c.judge((t + 7) * ms)
			vs, _ := c.Violations()
			bad = len(vs)
		}
	}
	l := c.records["m"]
	if len(l.live) > 20 || len(l.old) > 2*maxOld || len(l.floors) > 50 || len(l.ended) > 2*sliceSize {
		t.Errorf("it keeps %d live and %d old calls, %d floors, %d for slices", len(l.live), len(l.old), len(l.floors), len(l.ended))
	}
	if bad == 0 {
		t.Error("the overlap was not seen in its window")
	}
	c.Finish()
	if s := c.Stats(); s.Overlaps != 1 || s.Grants != 4000 || s.Slices < 60 {
		t.Errorf("%+v", s)
	}
}

func TestRegister(t *testing.T) {
	var r Register
	a, b := Key{P: 1, N: 1}, Key{P: 2, N: 1}
	if x := r.Read("m", 5, a); !x.OK || x.Value != 0 {
		t.Errorf("%+v", x)
	}
	if x := r.Read("m", 6, b); !x.OK || x.Highest != 5 {
		t.Errorf("%+v", x)
	}
	if x := r.Write("m", 6, b, 1, 1); !x.OK || x.Value != 1 {
		t.Errorf("%+v", x)
	}
	if x := r.Write("m", 5, a, 1, 1); x.OK || x.Value != 1 {
		t.Errorf("a stale write passed: %+v", x)
	}
	if x := r.Write("m", 6, a, 2, 2); x.OK {
		t.Error("an equal token of another hold passed")
	}
	if n := r.Corrupted(); n != 1 {
		t.Errorf("the twin lost %d writes, want 1", n)
	}
}

// TestWriterWritesWholeLines checks that each line is one write, and that times
// do not go back.
func TestWriterWritesWholeLines(t *testing.T) {
	var sink writes
	w := NewWriter(&sink)
	var last int64
	for n := range int64(100) {
		at, err := w.Write(Event{N: n, What: Ask})
		if err != nil || at < last {
			t.Fatal(at, last, err)
		}
		last = at
	}
	if len(sink) != 100 {
		t.Fatalf("%d writes", len(sink))
	}
	for n, b := range sink {
		var e Event
		if err := json.Unmarshal(b, &e); err != nil || e.N != int64(n) || bytes.Count(b, []byte("\n")) != 1 {
			t.Fatalf("%q: %v", b, err)
		}
	}
	if _, err := NewWriter(failing{}).Write(Event{}); err == nil {
		t.Error("a write that failed did not say so")
	}
}

type writes [][]byte

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, bytes.Clone(b))
	return len(b), nil
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no") }
