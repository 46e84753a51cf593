package trace

import (
	"fmt"
	"slices"
	"strings"
)

// Trace is the requests of one run about one lock, in order.
type Trace struct {
	Seed   uint64
	Name   string
	Events []Event
}

// Split cuts the events of one run into traces, one for each lock that had a
// ticket. An event that concerns several locks is in the trace of each.
func Split(events []Event) ([]Trace, error) {
	var all []Trace
	index := map[string]int{}         // of a name in all
	nameOf := map[string]string{}     // of the lock of a ticket
	uses := map[string]map[int]bool{} // clients that named a lock
	for _, e := range events {
		if e.ID != "" && e.Name != "" {
			if was, ok := nameOf[e.ID]; ok && was != e.Name {
				return nil, fmt.Errorf("event %d: ticket %s is of %q and of %q", e.Seq, e.ID, was, e.Name)
			}
			nameOf[e.ID] = e.Name
			if _, ok := index[e.Name]; !ok {
				index[e.Name] = len(all)
				all = append(all, Trace{Seed: e.Seed, Name: e.Name})
				uses[e.Name] = map[int]bool{}
			}
		}
	}
	for _, e := range events {
		if u := uses[e.Name]; u != nil && e.Kind != Names {
			u[e.Client] = true
		}
		if e.Kind == Push || e.Kind == Heard {
			name, ok := nameOf[e.ID]
			if !ok {
				return nil, fmt.Errorf("event %d: a push about ticket %s, which nobody has", e.Seq, e.ID)
			}
			uses[name][e.Client] = true
		}
	}
	events = noteDeaf(events)
	for _, e := range events {
		for i := range all {
			t := &all[i]
			switch e.Kind {
			case Join, Renew, Leave, Break, Inspect, LockDone, Got, Out, Told, HoldDone, Failed:
				if e.Name != t.Name {
					continue
				}
			case Names:
				if !strings.HasPrefix(t.Name, e.Name) {
					continue
				}
				uses[t.Name][e.Client] = true
			case Push, Heard:
				if nameOf[e.ID] != t.Name {
					continue
				}
			case Traits, Watch, Close, Gap, Ended:
				if !uses[t.Name][e.Client] {
					continue
				}
			}
			t.Events = append(t.Events, e)
		}
	}
	return all, nil
}

// noteDeaf returns the events of one run with the clients that may have had no connection
// for pushes: those that have not subscribed, and those whose next push comes after a
// gap, or never.
func noteDeaf(events []Event) []Event {
	events = slices.Clone(events)
	deaf := 0
	for i := range events {
		if c := events[i].Client; c > 0 {
			deaf |= 1 << (c - 1)
		}
	}
	untold := deaf
	for i := range events {
		e := &events[i]
		if e.Kind == Watch && e.Err == "" {
			untold &^= 1 << (e.Client - 1)
		}
		e.deaf = untold
	}
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		e.deaf |= deaf
		switch e.Kind {
		case Push:
			deaf &^= 1 << (e.Client - 1)
		case Gap:
			deaf |= 1 << (e.Client - 1)
		}
	}
	return events
}

// Runs cuts events into those of each run, which begins with its first event.
func Runs(events []Event) [][]Event {
	var runs [][]Event
	for len(events) > 0 {
		n := 1 + slices.IndexFunc(events[1:], func(e Event) bool { return e.Seq == 1 })
		if n == 0 {
			n = len(events)
		}
		runs = append(runs, events[:n:n])
		events = events[n:]
	}
	return runs
}
