package trace

import "slices"

// Cut cuts a long trace where its lock was idle: no ticket has an event before and
// another one after, and each ticket before has left, or was told that it is gone. A
// short trace is checked faster, and loses only that its tokens grow beyond those of
// the part before; Cut reports false where they do not. Each part begins with the
// traits and subscriptions of the parts before.
func Cut(t *Trace) (parts []Trace, grow bool) {
	last := map[string]int{} // of a ticket's events
	for i := range t.Events {
		for _, id := range []string{t.Events[i].ID, t.Events[i].Replaces} {
			if id != "" {
				last[id] = i
			}
		}
	}
	grow = true
	part := Trace{Seed: t.Seed, Name: t.Name}
	var standing []Event // traits and subscriptions
	open, over := map[string]bool{}, map[string]bool{}
	var highest, before uint64
	for i, e := range t.Events {
		switch e.Kind {
		case Join:
			grow = grow && (e.Token == 0 || e.Token > before)
			highest = max(highest, e.Token)
		case Traits, Watch, Close:
			standing = append(standing, e)
		}
		part.Events = append(part.Events, e)
		if e.ID == "" {
			continue
		}
		open[e.ID] = true
		if e.Replaces != "" && e.Err == "" && e.State != "gone" && last[e.Replaces] == i {
			delete(open, e.Replaces)
		}
		switch {
		case e.Kind == Leave && e.Err == "" || e.State == "gone":
			over[e.ID] = true
		case e.Kind == Join || e.Kind == Leave:
			over[e.ID] = false
		}
		if over[e.ID] && last[e.ID] == i { // perhaps by a push that came late
			delete(open, e.ID)
		}
		if len(open) > 0 || len(part.Events) < cutAfter {
			continue
		}
		parts = append(parts, part)
		part = Trace{Seed: t.Seed, Name: t.Name, Events: slices.Clone(standing)}
		for j := range part.Events {
			part.Events[j].At, part.Events[j].Took = e.At, 0
		}
		before = highest
	}
	if slices.ContainsFunc(part.Events, func(e Event) bool { return e.Limit > 0 }) {
		parts = append(parts, part)
	}
	return parts, grow
}

// cutAfter is the least number of events of a part.
const cutAfter = 40
