package trace

import (
	"math/rand/v2"
	"slices"
)

// Changes returns the ways in which [Change] changes a trace.
func Changes() []string {
	return []string{"state", "token", "lease", "ahead", "order", "left out", "ticket", "got early", "hold token", "told left out", "done left out", "out late", "loss unsaid", "sender"}
}

// Change returns a copy of t in which one thing is changed that a store may not
// change, drawn by rnd: a state, a token, a lease or Ahead in an answer, the ticket
// that it is about, the order of two requests that found each other's effect, or a
// request that is left out; or one that a client may not change: the order of a hold's
// events and of its ticket's, its token, an event that is left out or says nothing of a loss,
// or the client that sent a request. It reports false if t has nothing of this kind.
func Change(rnd *rand.Rand, t *Trace, what string) (*Trace, bool) {
	c := &Trace{Seed: t.Seed, Name: t.Name, Events: slices.Clone(t.Events)}
	var at []int
	for i := range c.Events {
		if c.changeable(what, i) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil, false
	}
	i := at[rnd.IntN(len(at))]
	e := &c.Events[i]
	switch what {
	case "state":
		states := slices.DeleteFunc([]string{"waiting", "held", "gone"}, func(s string) bool { return s == e.State })
		e.State = states[rnd.IntN(len(states))]
	case "token":
		others := slices.DeleteFunc(c.tokens(), func(n uint64) bool { return n == e.Token })
		e.Token = others[rnd.IntN(len(others))]
	case "lease":
		e.Lease = []int64{0, e.Lease / 2, e.Lease - e.Lease/50, e.Lease + e.Lease/10, 2 * e.Lease}[rnd.IntN(5)]
	case "ahead":
		e.Ahead += 1 - 2*rnd.IntN(2)
	case "order":
		j := c.next(i)
		c.Events[i], c.Events[j] = c.Events[j], c.Events[i]
		c.Events[i].At, c.Events[j].At = c.Events[j].At, c.Events[i].At
	case "left out":
		c.Events = slices.Delete(c.Events, i, i+1)
	case "ticket":
		others := slices.DeleteFunc(c.ids(e.Units, e.Owner), func(id string) bool { return id == e.ID })
		e.ID = others[rnd.IntN(len(others))]
	case "got early": // with its LockDone, before the answer or push that called it held
		j, k := c.doneOf(i), c.heldBy(i)
		said, got := c.Events[j], c.Events[i]
		said.At, got.At = c.Events[k].At, c.Events[k].At
		c.Events = slices.Delete(slices.Delete(c.Events, i, i+1), j, j+1)
		c.Events = slices.Insert(c.Events, k, said, got)
	case "hold token":
		others := slices.DeleteFunc(c.tokens(), func(n uint64) bool { return n == e.storeToken() })
		token := others[rnd.IntN(len(others))]<<8 | e.Token&0xff
		for j, hold := range c.Events {
			if hold.Hold == e.Hold && hold.ofCore() {
				c.Events[j].Token = token
			}
		}
	case "told left out", "done left out":
		c.Events = slices.Delete(c.Events, i, i+1)
	case "loss unsaid":
		e.Err = ""
	case "sender":
		others := slices.DeleteFunc(c.open(i), func(client int) bool { return client == e.Client })
		e.Client = others[rnd.IntN(len(others))]
	case "out late": // after the Leave of its ticket
		j := c.leaveOf(i)
		out := *e
		out.At = c.Events[j].At
		c.Events = slices.Insert(c.Events, j+1, out)
		c.Events = slices.Delete(c.Events, i, i+1)
	}
	return c, true
}

// changeable reports whether event i can be changed in this way.
func (t *Trace) changeable(what string, i int) bool {
	e := &t.Events[i]
	asks := (e.Kind == Join || e.Kind == Renew) && e.Err == ""
	took := (asks || e.Kind == Leave && e.Err == "") && (e.State == "held" || e.State == "waiting")
	switch what {
	case "state":
		return asks || e.Kind == Leave && e.Err == ""
	case "token":
		return took && e.Token != 0 && len(t.tokens()) > 1
	case "lease":
		return asks && took
	case "ahead":
		return asks && e.State == "waiting"
	case "order": // a place is taken, or given up, and another ticket asks next
		j := t.next(i)
		commutes := e.Kind == Leave && e.State == "held" && e.Units < e.Limit
		return j > 0 && e.Kind != Renew && took && !commutes && t.firstOf(i) && t.Events[j].ID != e.ID && t.Events[j].Kind == Join && t.Events[j].Err == "" &&
			(t.Events[j].State == "held" || t.Events[j].State == "waiting") && t.firstOf(j)
	case "left out": // without it the next request would not find the ticket
		return took && e.Kind == Join && t.firstOf(i) && t.asked(i)
	case "ticket":
		return took && e.Kind != Join && len(t.ids(e.Units, e.Owner)) > 1
	case "got early":
		return e.Kind == Got && t.heldBy(i) >= 0 && t.heldBy(i) < t.doneOf(i)
	case "hold token":
		return e.Kind == Got && len(t.tokens()) > 1
	case "told left out": // of a hold that was not being unlocked
		return e.Kind == Told && slices.ContainsFunc(t.Events[i:], func(o Event) bool { return o.Kind == Out && o.Hold == e.Hold })
	case "done left out":
		return e.Kind == HoldDone
	case "loss unsaid": // when its user unlocks it, or in HoldDone
		return (e.Kind == Out || e.Kind == HoldDone) && e.Err == endLost && slices.ContainsFunc(t.Events[:i], func(o Event) bool { return o.Kind == Told && o.Hold == e.Hold })
	case "sender":
		return took && e.Kind != Join && len(t.open(i)) > 1
	case "out late":
		return e.Kind == Out && e.Err == "" && t.leaveOf(i) >= 0
	}
	return false
}

// open returns the clients that sent a Join of the lock before event i, and were not closed.
func (t *Trace) open(i int) []int {
	var open []int
	for _, e := range t.Events[:i] {
		switch {
		case e.Kind == Join && !slices.Contains(open, e.Client):
			open = append(open, e.Client)
		case e.Kind == Close:
			open = slices.DeleteFunc(open, func(client int) bool { return client == e.Client })
		}
	}
	return open
}

// doneOf returns the index of the LockDone of the hold of event i.
func (t *Trace) doneOf(i int) int {
	return slices.IndexFunc(t.Events, func(e Event) bool { return e.Kind == LockDone && e.Hold == t.Events[i].Hold })
}

// heldBy returns the index of the first answer or push that called the ticket of event i
// held, or -1.
func (t *Trace) heldBy(i int) int {
	return slices.IndexFunc(t.Events[:i], func(e Event) bool {
		return e.ID == t.Events[i].ID && e.State == "held" && e.Err == "" && e.Kind != Leave
	})
}

// leaveOf returns the index of the first Leave, after event i, of its ticket, or -1 if
// it has another hold first.
func (t *Trace) leaveOf(i int) int {
	later := t.Events[i+1:]
	j := slices.IndexFunc(later, func(e Event) bool { return e.ID == t.Events[i].ID && (e.Kind == Got || e.Kind == Leave) })
	if j < 0 || later[j].Kind == Got || later[j].Err != "" {
		return -1
	}
	return i + 1 + j
}

// next returns the index of the next request about a ticket of the lock, or 0.
func (t *Trace) next(i int) int {
	for j := i + 1; j < len(t.Events); j++ {
		switch t.Events[j].Kind {
		case Join, Renew, Leave, Break:
			return j
		}
	}
	return 0
}

// firstOf reports whether event i is a Leave, or the first Join of its ticket.
func (t *Trace) firstOf(i int) bool {
	return t.Events[i].Kind == Leave || !slices.ContainsFunc(t.Events[:i], func(e Event) bool { return e.ID == t.Events[i].ID })
}

// asked reports whether the next request about the ticket of event i, no Join,
// finds it.
func (t *Trace) asked(i int) bool {
	later := t.Events[i+1:]
	j := slices.IndexFunc(later, func(e Event) bool { return e.ID == t.Events[i].ID && e.Kind != Push })
	return j >= 0 && later[j].Kind != Join && (later[j].State == "held" || later[j].State == "waiting")
}

// tokens returns the tokens of the trace, each once.
func (t *Trace) tokens() []uint64 {
	var all []uint64
	for _, e := range t.Events {
		if e.Token != 0 && !e.ofCore() {
			all = append(all, e.Token)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ids returns the tickets of an owner that take as many units.
func (t *Trace) ids(units int64, owner string) []string {
	var all []string
	for _, e := range t.Events {
		if e.Kind == Join && e.Units == units && e.Owner == owner && e.Wait {
			all = append(all, e.ID)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
