package trace

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The units of time in modules, whose integers have 32 bits.
const (
	UnitsTTL   = 500_000_000            // of a lease, of whatever length
	UnitsKeep  = UnitsTTL + UnitsTTL/25 // driver.Keep
	UnitsMost  = 4 * UnitsTTL           // a longer time is as good as this one
	UnitsGrain = UnitsTTL / 500         // by which a server's clock rounds, two of its ms in a second
)

// mostWaited is the most TTLs of a wait that modules have.
const mostWaited = 1000

// ForgetAfter is the time after which a store may forget a tombstone.
const ForgetAfter = time.Minute

// rwLimit stands for driver.RWLimit in modules.
const rwLimit = 64

// LimitIn returns the limit that stands for limit in modules.
func LimitIn(limit int64) int64 {
	if limit == driver.RWLimit {
		return rwLimit
	}
	return limit
}

// Limit returns the limit of the trace's lock. A trace whose tickets have several
// limits or TTLs, or none, is an error.
func (t *Trace) Limit() (int64, error) {
	limit, _, err := t.bounds()
	return limit, err
}

// Lasts returns the time from the trace's first event to its last one, by the store's clock.
func (t *Trace) Lasts() time.Duration {
	stepped := int64(0)
	for _, e := range t.Events {
		stepped += e.Step
	}
	last := len(t.Events) - 1
	if last < 0 {
		return 0
	}
	return time.Duration(t.Events[last].At - stepped - t.Events[0].At)
}

func (t *Trace) bounds() (limit, ttl int64, err error) {
	for _, e := range t.Events {
		if e.Limit == 0 {
			continue
		}
		if limit != 0 && (limit != e.Limit || ttl != e.TTL) {
			return 0, 0, fmt.Errorf("tickets of limit %d and TTL %v, and of limit %d and TTL %v", limit, time.Duration(ttl), e.Limit, e.ttl())
		}
		limit, ttl = e.Limit, e.TTL
	}
	if limit == 0 || ttl <= 0 {
		return 0, 0, fmt.Errorf("no ticket with a limit and a TTL")
	}
	return limit, ttl, nil
}

// Module writes traces of locks of one limit as the module of a name, which
// extends module Trace and defines its constants Traces, Tickets and Clients as
// Recorded, RecordedTickets and RecordedClients.
func Module(w io.Writer, name string, traces []*Trace) error {
	tickets, clients := map[int]bool{}, 0
	var texts []string
	for i := range traces {
		m, err := newEncoding(traces[i])
		if err != nil {
			return fmt.Errorf("seed %d, lock %q: %w", traces[i].Seed, traces[i].Name, err)
		}
		var tuples []string
		events := traces[i].Events
		coming, meanwhile := m.coming(events), m.meanwhile(events)
		told := m.later(events, func(e *Event) bool { return e.Kind == Push && e.State == "held" })
		rejoins := m.later(events, func(e *Event) bool { return e.Kind == Join && e.Err == "" })
		for j := range traces[i].Events {
			tuple, err := m.tuple(&events[j], coming[j], meanwhile[j], told[j], rejoins[j])
			if err != nil {
				return fmt.Errorf("seed %d, lock %q, event %v: %w", traces[i].Seed, traces[i].Name, traces[i].Events[j], err)
			}
			tuples = append(tuples, tuple)
		}
		for _, n := range m.number {
			tickets[n] = true
		}
		clients = max(clients, m.clients)
		texts = append(texts, fmt.Sprintf("T%d == <<\n%s>>\n", i+1, strings.Join(tuples, ",\n")))
	}
	if len(tickets) == 0 {
		return fmt.Errorf("there are no tickets")
	}
	var numbers, refs []string
	for _, n := range slices.Sorted(maps.Keys(tickets)) {
		numbers = append(numbers, strconv.Itoa(n))
	}
	for i := range traces {
		refs = append(refs, fmt.Sprintf("T%d", i+1))
	}
	_, err := fmt.Fprintf(w, "---- MODULE %s ----\nEXTENDS Trace\n%sRecorded == <<%s>>\nRecordedTickets == {%s}\nRecordedClients == 1..%d\n====\n",
		name, strings.Join(texts, ""), strings.Join(refs, ", "), strings.Join(numbers, ", "), clients)
	return err
}

// Tickets returns the ids of the tickets of a trace, by the numbers that [Module] gives
// them.
func (t *Trace) Tickets() (map[int]string, error) {
	m, err := newEncoding(t)
	if err != nil {
		return nil, err
	}
	ids := map[int]string{}
	for id, n := range m.number {
		ids[n] = id
	}
	return ids, nil
}

// encoding makes tuples of small integers out of the events of a trace.
type encoding struct {
	unit    int64          // nanoseconds
	number  map[string]int // of tickets: the owner, units, whether it tries, and a rank
	tokens  []uint64       // all of the trace, in order
	traits  []string
	clients int
	holds   map[int]int // the number of a hold in the trace
	name    string      // of the lock

	last    int64 // units at the last event, by a clock that is never set
	began   int64 // nanoseconds at the first event
	stepped int64 // nanoseconds that the clock was set by
}

func newEncoding(t *Trace) (*encoding, error) {
	_, ttl, err := t.bounds()
	if err != nil {
		return nil, err
	}
	if ttl%UnitsTTL != 0 {
		return nil, fmt.Errorf("a TTL of %v is no multiple of %v", time.Duration(ttl), time.Duration(UnitsTTL))
	}
	m := &encoding{name: t.Name, unit: ttl / UnitsTTL, number: map[string]int{}, holds: map[int]int{}}
	if len(t.Events) > 0 {
		m.began, m.last = t.Events[0].At, t.Events[0].At/m.unit
	}
	tokens := map[uint64]bool{}
	tries, waits, units := map[string]bool{}, map[string]bool{}, map[string]int64{}
	owners, numbers := map[string]string{}, map[string]int{"": 0}
	for _, e := range t.Events {
		m.clients = max(m.clients, e.Client)
		tokens[e.storeToken()], tokens[e.MinToken] = true, true
		if e.Kind == LockDone {
			m.holds[e.Hold] = len(m.holds) + 1
		}
		for _, x := range e.Tickets {
			tokens[x.Token] = true
		}
		if e.Kind == Join {
			tries[e.ID] = tries[e.ID] || !e.Wait
			waits[e.ID] = waits[e.ID] || e.Wait
		}
		if e.Units == 0 {
			continue
		}
		if was, ok := owners[e.ID]; ok && was != e.Owner {
			return nil, fmt.Errorf("ticket %s has the owners %q and %q", e.ID, was, e.Owner)
		}
		if owners[e.ID] = e.Owner; numbers[e.Owner] == 0 && e.Owner != "" {
			numbers[e.Owner] = len(numbers)
		}
		if was := units[e.ID]; was != 0 && was != e.Units || e.Units < 0 || e.Units > e.Limit {
			return nil, fmt.Errorf("ticket %s has %d of %d units", e.ID, e.Units, e.Limit)
		}
		units[e.ID] = e.Units
	}
	delete(tokens, 0)
	m.tokens = slices.Sorted(maps.Keys(tokens))
	ranks := map[int]int{}
	for _, e := range t.Events {
		if e.ID == "" || m.number[e.ID] != 0 {
			continue
		}
		n := units[e.ID]
		if n == driver.RWLimit {
			n = rwLimit
		}
		if tries[e.ID] && waits[e.ID] {
			return nil, fmt.Errorf("ticket %s tries and waits", e.ID)
		}
		kind := numbers[owners[e.ID]]*1_000_000 + int(n)*2000
		if tries[e.ID] {
			kind += 1000
		}
		ranks[kind]++
		m.number[e.ID] = kind + ranks[kind]
	}
	return m, nil
}

// coming returns, for each event, the tickets that had an event before and have this one
// or a later one.
func (m *encoding) coming(events []Event) []string {
	all := make([]string, len(events))
	if !slices.ContainsFunc(events, func(e Event) bool { return e.Took != 0 }) {
		for i := range all {
			all[i] = "{}" // nothing is left open, and no state is one with another
		}
		return all
	}
	last := map[int]int{} // the last event of a ticket, by its number
	for i := range events {
		for _, id := range []string{events[i].ID, events[i].Replaces} {
			last[m.number[id]] = i
		}
	}
	open := map[int]bool{}
	for i := range events {
		var now []string
		for _, n := range slices.Sorted(maps.Keys(open)) {
			if last[n] < i {
				delete(open, n)
				continue
			}
			now = append(now, strconv.Itoa(n))
		}
		all[i] = "{" + strings.Join(now, ", ") + "}"
		for _, id := range []string{events[i].ID, events[i].Replaces} {
			if n := m.number[id]; n != 0 {
				open[n] = true
			}
		}
	}
	return all
}

// meanwhile returns, for each event, the tickets that may have been granted before it though
// a push that called them held comes later: one that came after the request was sent and
// before it was answered, or one whose token is below that of a ticket with an event before
// the push.
func (m *encoding) meanwhile(events []Event) []string {
	told := make([][]string, len(events))
	tell := func(i int, id string) {
		if n := strconv.Itoa(m.number[id]); !slices.Contains(told[i], n) {
			told[i] = append(told[i], n)
		}
	}
	tokens := map[string]uint64{} // the highest of a ticket
	for i, e := range events {
		tokens[e.ID] = max(tokens[e.ID], e.storeToken())
		for _, p := range events[i+1:] {
			if p.At > e.At+e.Took {
				break
			}
			if p.Kind == Push && p.State == "held" {
				tell(i, p.ID)
			}
		}
	}
	for j, p := range events {
		if p.Kind != Push || p.State != "held" || !slices.ContainsFunc(events[:j], func(e Event) bool { return tokens[e.ID] > p.Token }) {
			continue
		}
		for i := slices.IndexFunc(events, func(e Event) bool { return e.ID == p.ID }) + 1; i < j; i++ {
			tell(i, p.ID)
		}
	}
	all := make([]string, len(events))
	for i := range told {
		all[i] = "{" + strings.Join(told[i], ", ") + "}"
	}
	return all
}

// later returns, for each event, the tickets that have an event of a sort, this one or a
// later one. Where nothing is left open it does not matter, and is left out.
func (m *encoding) later(events []Event, of func(*Event) bool) []string {
	all := make([]string, len(events))
	loose := slices.ContainsFunc(events, func(e Event) bool { return e.Took != 0 })
	open := map[int]bool{}
	for i := len(events) - 1; i >= 0; i-- {
		if loose && of(&events[i]) {
			open[m.number[events[i].ID]] = true
		}
		var now []string
		for _, n := range slices.Sorted(maps.Keys(open)) {
			now = append(now, strconv.Itoa(n))
		}
		all[i] = "{" + strings.Join(now, ", ") + "}"
	}
	return all
}

// units returns a time in the module's units.
func (m *encoding) units(ns int64) int64 { return max(min(ns/m.unit, UnitsMost), -UnitsMost) }

func (m *encoding) rank(token uint64) int {
	if token == 0 {
		return 0
	}
	i, _ := slices.BinarySearch(m.tokens, token)
	return i + 1
}

// tuple writes an event as module Trace reads it.
func (m *encoding) tuple(e *Event, sets ...string) (string, error) {
	at := (e.At - m.stepped) / m.unit
	passed := at - m.last
	m.last = at
	if passed < 0 {
		return "", fmt.Errorf("it is earlier than the one before")
	}
	ms := (e.At - m.stepped - m.began) / int64(time.Millisecond)
	extra, err := m.extra(e)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("<<%q, %d, %d, %d, %q, %d, %d, %d, %q, %s, %d, %d, %d, %s, %d, %s>>",
		e.Kind, min(passed, UnitsMost), e.Client, m.number[e.ID], e.State, m.rank(e.storeToken()), m.units(e.Lease), e.Ahead, e.Err, extra, m.rank(e.MinToken), ms, m.units(e.Took), m.told(e), e.deaf, strings.Join(sets, ", ")), nil
}

// told returns what an event says of its client: when the request was sent whose answer it
// has heard, the lease, and when it heard that; or the hold, and the core's part of its token.
func (m *encoding) told(e *Event) string {
	ms := func(ns int64) int64 { return (ns + int64(time.Millisecond) - 1) / int64(time.Millisecond) }
	at := e.At - m.stepped - m.began
	switch {
	case e.ofCore():
		return fmt.Sprintf("<<%d, %d>>", m.holds[e.Hold], e.Token&0xff)
	case e.Heard > 0:
		return fmt.Sprintf("<<%d, %d, %d>>", ms(at-e.Sent), ms(e.Lease), ms(at+e.Heard))
	}
	return "<<>>"
}

// extra returns the part of a tuple that each kind has for itself.
func (m *encoding) extra(e *Event) (string, error) {
	yes := func(b bool) (string, error) {
		if b {
			return "1", nil
		}
		return "0", nil
	}
	switch e.Kind {
	case Join:
		if e.Replaces != "" && m.number[e.Replaces] == 0 {
			return "", fmt.Errorf("ticket %s is replaced, and nothing else is known of it", e.Replaces)
		}
		return strconv.Itoa(m.number[e.Replaces]), nil
	case Leave:
		return yes(e.Pending)
	case Failed:
		return strconv.FormatInt(min(e.Waited/(m.unit*UnitsTTL), mostWaited), 10), nil
	case Names:
		return yes(slices.Contains(e.Found, m.name))
	case Step:
		m.stepped += e.Step
		return strconv.FormatInt(m.units(-e.Step), 10), nil
	case Traits:
		if !slices.Contains(m.traits, e.Traits) {
			m.traits = append(m.traits, e.Traits)
		}
		return strconv.Itoa(1 + slices.Index(m.traits, e.Traits)), nil
	case Inspect:
		var places []string
		for _, x := range e.Tickets {
			if m.number[x.ID] == 0 {
				return "", fmt.Errorf("ticket %s is in the queue, and nothing else is known of it", x.ID)
			}
			if x.Left > 0 {
				places = append(places, fmt.Sprintf("<<%d, %d, %d>>", m.number[x.ID], m.rank(x.Token), m.units(x.Left)))
			}
		}
		return "<<" + strings.Join(places, ", ") + ">>", nil
	}
	return "0", nil
}
