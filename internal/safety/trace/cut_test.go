package trace_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// turns returns the trace of a lock that n tickets hold in turn, with a token each.
func turns(n int, token func(int) uint64) *trace.Trace {
	t := &trace.Trace{Name: "n", Events: []trace.Event{{Kind: trace.Traits, Client: 1}, {Kind: trace.Watch, Client: 1}}}
	for i := range n {
		e := trace.Event{Client: 1, Name: "n", ID: fmt.Sprintf("a:%d", i), Units: 1, Limit: 1, TTL: 1e9, State: "held", Token: token(i), At: int64(2 * i)}
		join, leave := e, e
		join.Kind, leave.Kind, leave.At = trace.Join, trace.Leave, e.At+1
		t.Events = append(t.Events, join, leave)
	}
	return t
}

func TestCutPartsHaveEachTicketWhole(t *testing.T) {
	whole := turns(100, func(i int) uint64 { return uint64(i + 1) })
	parts, grow := trace.Cut(whole)
	if !grow || len(parts) < 4 {
		t.Fatalf("%d parts, tokens grow: %v", len(parts), grow)
	}
	in, events := map[string]int{}, 0
	for n, p := range parts {
		if p.Events[0].Kind != trace.Traits || p.Events[1].Kind != trace.Watch {
			t.Errorf("part %d begins with %v, %v", n, p.Events[0], p.Events[1])
		}
		for i, e := range p.Events {
			if i > 0 && e.At < p.Events[i-1].At {
				t.Errorf("part %d goes back in time", n)
			}
			if was, ok := in[e.ID]; e.ID != "" && ok && was != n {
				t.Errorf("ticket %s is in parts %d and %d", e.ID, was, n)
			}
			in[e.ID] = n
			if e.ID != "" {
				events++
			}
		}
	}
	if events != 200 {
		t.Errorf("%d of 200 events", events)
	}
}

func TestCutFindsTokensThatGoBack(t *testing.T) {
	if _, grow := trace.Cut(turns(100, func(i int) uint64 { return uint64(i%60 + 1) })); grow {
		t.Error("tokens grow that do not")
	}
}

// TestCutKnowsWhatWasReplaced checks that a ticket whose place another one took is over.
func TestCutKnowsWhatWasReplaced(t *testing.T) {
	whole := turns(100, func(i int) uint64 { return uint64(i + 1) })
	whole.Events[4].Replaces = whole.Events[2].ID
	whole.Events = append(whole.Events[:3:3], whole.Events[4:]...)
	if parts, _ := trace.Cut(whole); len(parts) < 4 {
		t.Errorf("%d parts", len(parts))
	}
	whole.Events[3].Err = "unknown"
	if parts, _ := trace.Cut(whole); len(parts) != 1 {
		t.Errorf("%d parts, and it is not known whether it was replaced", len(parts))
	}
}

// TestCutKnowsThatAPushMayComeLate checks that a ticket is over whose last event is a push
// from before its Leave, and not one of which a Join followed.
func TestCutKnowsThatAPushMayComeLate(t *testing.T) {
	whole := turns(100, func(i int) uint64 { return uint64(i + 1) })
	late := whole.Events[2]
	late.Kind, late.At = trace.Push, whole.Events[3].At
	whole.Events = slices.Insert(whole.Events, 4, late)
	if parts, _ := trace.Cut(whole); len(parts) < 4 {
		t.Errorf("%d parts", len(parts))
	}
	whole.Events[4].Kind = trace.Join
	if parts, _ := trace.Cut(whole); len(parts) != 1 {
		t.Errorf("%d parts, and the ticket that left has joined", len(parts))
	}
}

// TestCutKeepsTogetherWhatIsOpen checks that a ticket of whose end nothing is known
// stays in one part with all that follow.
func TestCutKeepsTogetherWhatIsOpen(t *testing.T) {
	whole := turns(100, func(i int) uint64 { return uint64(i + 1) })
	whole.Events[3].Kind = trace.Renew // the first ticket does not leave
	if parts, _ := trace.Cut(whole); len(parts) != 1 {
		t.Errorf("%d parts", len(parts))
	}
}
