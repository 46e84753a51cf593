package trace_test

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// TestEveryMethodHasAnEvent checks that no method of a driver goes unrecorded.
func TestEveryMethodHasAnEvent(t *testing.T) {
	d := reflect.TypeFor[driver.Driver]()
	var methods []trace.Kind
	for i := range d.NumMethod() {
		methods = append(methods, trace.Kind(strings.ToLower(d.Method(i).Name)))
	}
	for _, m := range methods {
		if !slices.Contains(trace.Kinds(), m) {
			t.Errorf("method %s has no event", m)
		}
	}
	for _, k := range trace.Kinds() {
		if !slices.Contains(methods, k) && !slices.Contains([]trace.Kind{
			trace.Push, trace.Gap, trace.Step, trace.LockDone, trace.Got, trace.Out, trace.Told, trace.HoldDone, trace.Failed, trace.Heard, trace.Ended,
		}, k) {
			t.Errorf("event %s is no method", k)
		}
	}
}

// TestEventsAreTheActions checks that each event has an action of its name in
// module Trace, and each action an event.
func TestEventsAreTheActions(t *testing.T) {
	text, err := os.ReadFile("../../../proof/Trace.tla")
	if err != nil {
		t.Fatal(err)
	}
	next := regexp.MustCompile(`(?s)\nNext == (.*?)\nSpec`).FindSubmatch(text)
	if next == nil {
		t.Fatal("module Trace has no Next")
	}
	var actions []string
	for _, name := range regexp.MustCompile(`\w+`).FindAllString(string(next[1]), -1) {
		actions = append(actions, strings.ToLower(name))
		if !strings.Contains(string(text), `What = "`+strings.ToLower(name)+`"`) {
			t.Errorf("action %s takes no event", name)
		}
	}
	var kinds []string
	for _, k := range trace.Kinds() {
		kinds = append(kinds, string(k))
	}
	slices.Sort(actions)
	slices.Sort(kinds)
	if !slices.Equal(actions, kinds) {
		t.Errorf("actions are %q, events %q", actions, kinds)
	}
}

// TestReadRefusesWhatItDoesNotKnow checks that a field, a kind or a version that
// is not known is an error.
func TestReadRefusesWhatItDoesNotKnow(t *testing.T) {
	var text bytes.Buffer
	if err := trace.Write(&text, []trace.Event{{Version: trace.Version, Kind: trace.Join, Seq: 1}}); err != nil {
		t.Fatal(err)
	}
	good := text.String()
	if events, err := trace.Read(strings.NewReader(good)); err != nil || len(events) != 1 {
		t.Fatalf("%d events: %v", len(events), err)
	}
	for what, bad := range map[string]string{
		"field":   strings.Replace(good, `"seq"`, `"sequence"`, 1),
		"event":   strings.Replace(good, `"join"`, `"jump"`, 1),
		"version": strings.Replace(good, `"v":1`, `"v":2`, 1),
		"JSON":    good[:len(good)/2],
	} {
		if events, err := trace.Read(strings.NewReader(bad)); err == nil {
			t.Errorf("an unknown %s is read as %v", what, events)
		}
	}
}

// TestModuleNeedsWhatTheSpecificationHas checks that a trace which module Trace
// cannot judge is an error, and is not passed over.
func TestModuleNeedsWhatTheSpecificationHas(t *testing.T) {
	join := trace.Event{
		Version: trace.Version, Kind: trace.Join, Seq: 1, Client: 1, Name: "n", ID: "a:1", Units: 1, Limit: 1, TTL: 1e9, Wait: true,
		State: "held", Token: 1, Lease: 1e9,
	}
	write := func(events ...trace.Event) error {
		return trace.Module(&bytes.Buffer{}, "Recorded", []*trace.Trace{{Name: "n", Events: events}})
	}
	if err := write(join); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*trace.Event){
		"another owner":           func(e *trace.Event) { e.Owner = "job" },
		"more units":              func(e *trace.Event) { e.Units = 2 },
		"another limit":           func(e *trace.Event) { e.Limit = 2 },
		"a ticket never seen":     func(e *trace.Event) { e.Replaces = "a:0" },
		"a ticket that tries now": func(e *trace.Event) { e.Wait = false },
		"an earlier time":         func(e *trace.Event) { e.At = -100 },
	} {
		second := join
		second.Seq = 2
		change(&second)
		if err := write(join, second); err == nil {
			t.Errorf("an event with %s is written", what)
		}
	}
	if err := write(); err == nil {
		t.Error("a trace without events is written")
	}
	if _, err := trace.Split([]trace.Event{{Version: trace.Version, Kind: trace.Push, Seq: 1, Client: 1, ID: "a:1"}}); err == nil {
		t.Error("a push about an unknown ticket is passed over")
	}
}

// TestHoldsAreNumberedByTrace checks that the holds of a trace have the order of their
// LockDone, that one without LockDone has no number, and that a token is written in its
// two parts.
func TestHoldsAreNumberedByTrace(t *testing.T) {
	event := func(kind trace.Kind, hold int, token uint64) trace.Event {
		e := trace.Event{Version: trace.Version, Kind: kind, Client: 1, Name: "n", Hold: hold, Token: token}
		if kind != trace.LockDone && kind != trace.HoldDone {
			e.ID = "a:1"
		}
		return e
	}
	join := event(trace.Join, 0, 9)
	join.Units, join.Limit, join.TTL, join.Wait, join.State = 1, 1, 1e9, true, "held"
	other := event(trace.LockDone, 4, 9<<8)
	other.Name = "other"
	traces, err := trace.Split([]trace.Event{
		join, other, event(trace.LockDone, 7, 9<<8), event(trace.LockDone, 5, 9<<8+3), event(trace.Got, 5, 9<<8+3), event(trace.Got, 6, 8<<8),
	})
	if err != nil || len(traces) != 1 {
		t.Fatalf("%d traces: %v", len(traces), err)
	}
	var text strings.Builder
	if err := trace.Module(&text, "Recorded", []*trace.Trace{&traces[0]}); err != nil {
		t.Fatal(err)
	}
	var is []string
	for _, m := range regexp.MustCompile(`<<"(?:lockdone|got)", \d+, 1, \d+, "", (\d+), .*, <<(\d+, \d+)>>, 1, `).FindAllStringSubmatch(text.String(), -1) {
		is = append(is, m[1]+": "+m[2])
	}
	if want := []string{"2: 1, 0", "2: 2, 3", "2: 2, 3", "1: 0, 0"}; !slices.Equal(is, want) {
		t.Errorf("holds are %q, want %q, in\n%s", is, want, text.String())
	}
}

// TestDeafClientsAreNoted checks that a client may be passed over until it has subscribed,
// and from its last push until the gap that it hears of, or the end, and at no other time.
func TestDeafClientsAreNoted(t *testing.T) {
	event := func(kind trace.Kind, client int) trace.Event {
		e := trace.Event{Version: trace.Version, Kind: kind, Client: client, Name: "n"}
		if kind != trace.Watch && kind != trace.Gap {
			e.ID, e.Units, e.Limit, e.TTL, e.Wait, e.State = "a:1", 1, 1, 1e9, true, "waiting"
		}
		return e
	}
	events := []trace.Event{
		event(trace.Join, 1), event(trace.Watch, 1), event(trace.Renew, 1), event(trace.Push, 1),
		event(trace.Renew, 1), event(trace.Gap, 1), event(trace.Renew, 1), event(trace.Push, 1), event(trace.Renew, 1),
	}
	want := []string{"1", "0", "0", "1", "1", "0", "0", "1", "1"}
	traces, err := trace.Split(events)
	if err != nil || len(traces) != 1 {
		t.Fatalf("%d traces: %v", len(traces), err)
	}
	var text strings.Builder
	if err := trace.Module(&text, "Recorded", []*trace.Trace{&traces[0]}); err != nil {
		t.Fatal(err)
	}
	var is []string
	for _, m := range regexp.MustCompile(`, (\d+), \{\}, \{\}, \{[^}]*\}, \{[^}]*\}>>`).FindAllStringSubmatch(text.String(), -1) {
		is = append(is, m[1])
	}
	if !slices.Equal(is, want) {
		t.Errorf("deaf is %v, want %v, in\n%s", is, want, text.String())
	}
}

// TestComingTicketsAreNoted checks that each event has the tickets that had one before and
// have it or a later one, and that traces without a time for each request have none: there
// nothing is left open.
func TestComingTicketsAreNoted(t *testing.T) {
	event := func(kind trace.Kind, id string) trace.Event {
		return trace.Event{Version: trace.Version, Kind: kind, Client: 1, Name: "n", ID: id, Units: 1, Limit: 1, TTL: 1e9, Wait: true, State: "waiting", Took: 1}
	}
	events := []trace.Event{
		event(trace.Join, "a:1"), event(trace.Join, "a:2"), event(trace.Renew, "a:1"), event(trace.Leave, "a:1"), event(trace.Leave, "a:2"),
	}
	coming := func() (all []string) {
		var text strings.Builder
		if err := trace.Module(&text, "Recorded", []*trace.Trace{{Name: "n", Events: events}}); err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`, (\{[^}]*\}), \{\}, \{[^}]*\}, \{[^}]*\}>>`).FindAllStringSubmatch(text.String(), -1) {
			all = append(all, m[1])
		}
		return all
	}
	if is, want := coming(), []string{"{}", "{2001}", "{2001, 2002}", "{2001, 2002}", "{2002}"}; !slices.Equal(is, want) {
		t.Errorf("the tickets to come are %q, want %q", is, want)
	}
	for i := range events {
		events[i].Took = 0
	}
	if is, want := coming(), []string{"{}", "{}", "{}", "{}", "{}"}; !slices.Equal(is, want) {
		t.Errorf("without times the tickets to come are %q, want %q", is, want)
	}
}

// TestPushesMeanwhileAreNoted checks that a request has the tickets that a push called held
// while it was under way, and no request has those that were told before or after it.
func TestPushesMeanwhileAreNoted(t *testing.T) {
	event := func(kind trace.Kind, id, state string, at, took int64) trace.Event {
		e := trace.Event{Version: trace.Version, Kind: kind, Client: 1, Name: "n", ID: id, State: state, At: at, Took: took}
		if kind != trace.Push {
			e.Units, e.Limit, e.TTL, e.Wait = 1, 1, 1e9, true
		}
		return e
	}
	events := []trace.Event{
		event(trace.Join, "a:1", "waiting", 0, 5), event(trace.Join, "a:2", "waiting", 10, 5), event(trace.Push, "a:1", "held", 12, 0),
		event(trace.Push, "a:2", "gone", 13, 0), event(trace.Push, "a:2", "held", 16, 0), event(trace.Leave, "a:1", "held", 20, 5),
	}
	var text strings.Builder
	if err := trace.Module(&text, "Recorded", []*trace.Trace{{Name: "n", Events: events}}); err != nil {
		t.Fatal(err)
	}
	var meanwhile, pushed, rejoin []string
	for _, m := range regexp.MustCompile(`, (\{[^}]*\}), (\{[^}]*\}), (\{[^}]*\})>>`).FindAllStringSubmatch(text.String(), -1) {
		meanwhile, pushed, rejoin = append(meanwhile, m[1]), append(pushed, m[2]), append(rejoin, m[3])
	}
	if want := []string{"{}", "{2001}", "{}", "{}", "{}", "{}"}; !slices.Equal(meanwhile, want) {
		t.Errorf("the tickets told meanwhile are %q, want %q, in\n%s", meanwhile, want, text.String())
	}
	if want := []string{"{2001, 2002}", "{2001, 2002}", "{2001, 2002}", "{2002}", "{2002}", "{}"}; !slices.Equal(pushed, want) {
		t.Errorf("the tickets that a push calls held from here on are %q, want %q", pushed, want)
	}
	if want := []string{"{2001, 2002}", "{2002}", "{}", "{}", "{}", "{}"}; !slices.Equal(rejoin, want) {
		t.Errorf("the tickets that join from here on are %q, want %q", rejoin, want)
	}
}
