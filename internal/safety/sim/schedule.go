package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Schedule has the decisions of a seed. Its times are those of the bubble, from
// the begin of the run.
type Schedule struct {
	Seed       uint64
	Clients    int
	Goroutines int // of each client
	Calls      int // of each goroutine
	Names      int // of locks: a mutex, a read/write lock, a semaphore
	TTL        time.Duration
	Slow       []time.Duration // for each client: the longest time of a message without a fault
	Odds       int             // the percentage of requests and pushes that meet a fault
	Events     []Event         // in the order of their times
	Exposed    bool            // some Events are more than a lock promises to survive
	// Owners, where there are any, name the owner of each client's tickets. Clients of
	// one owner hold together, so that [Played.Judge] has nothing to say about them.
	Owners []string
	// Endings, where there are any, are the ends of the first clients. All clients then
	// work in functions of Do.
	Endings []Ending
}

// Event is an event of a client or the store at a time.
type Event struct {
	At, For time.Duration
	What    EventKind
	Client  int           // of Silence and Death
	Step    time.Duration // of Clock
}

// EventKind is the kind of an event of a client or the store.
type EventKind string

// The events. The last three may let two clients hold at once.
const (
	Silence EventKind = "silence" // no message passes between a client and the store
	Death   EventKind = "death"   // a client is killed
	Outage  EventKind = "outage"  // the store refuses all requests
	Behind  EventKind = "behind"  // the store's clock steps back
	Ahead   EventKind = "ahead"   // the store's clock steps forward
	Wipe    EventKind = "wipe"    // the store loses its data
	Restore EventKind = "restore" // the store returns to its state of For before
)

// String returns the event in one line.
func (e Event) String() string {
	s := fmt.Sprintf("%9.6fs %s", e.At.Seconds(), e.What)
	switch e.What {
	case Silence:
		return fmt.Sprintf("%s of client %d for %v", s, e.Client, e.For)
	case Death:
		return fmt.Sprintf("%s of client %d", s, e.Client)
	case Outage:
		return fmt.Sprintf("%s of the store for %v", s, e.For)
	case Behind, Ahead:
		return fmt.Sprintf("%s: the store's clock by %v", s, e.Step)
	case Restore:
		return fmt.Sprintf("%s: of what the store was %v before", s, e.For)
	}
	return s
}

// String returns the schedule in a few lines.
func (s Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d clients × %d goroutines × %d calls, %d names, TTL %v, messages take up to %v by client, %d%% meet a fault\n",
		s.Seed, s.Clients, s.Goroutines, s.Calls, s.Names, s.TTL, s.Slow, s.Odds)
	for _, e := range s.Events {
		fmt.Fprintf(&b, "    %v\n", e)
	}
	for i, e := range s.Endings {
		fmt.Fprintf(&b, "    client %d: %v\n", i, e)
	}
	return b.String()
}

// Plan returns the schedule of a seed. An exposed schedule has one more event,
// which may let two clients hold at once.
func Plan(seed uint64, exposed bool) Schedule {
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := Schedule{
		Seed: seed, Clients: 2 + rnd.IntN(2), Goroutines: 1 + rnd.IntN(2), Calls: 2 + rnd.IntN(3), Names: 1 + rnd.IntN(3),
		TTL:     []time.Duration{time.Second, 10 * time.Second}[rnd.IntN(2)],
		Odds:    []int{0, 3, 10, 30}[rnd.IntN(4)],
		Exposed: exposed,
	}
	// A slow client believes longest in a lock that a fast client is granted
	// meanwhile.
	for range s.Clients {
		s.Slow = append(s.Slow, time.Duration(rnd.Float64()*float64(s.TTL)/[]float64{7, 50, 500}[rnd.IntN(3)]))
	}
	some := func(most float64) time.Duration { return time.Duration(rnd.Float64() * most * float64(s.TTL)) }
	kinds := []EventKind{Silence, Silence, Silence, Death, Outage, Behind}
	for range rnd.IntN(6) {
		e := Event{At: some(5), What: kinds[rnd.IntN(len(kinds))], Client: rnd.IntN(s.Clients)}
		switch e.What {
		case Silence, Outage:
			e.For = s.TTL/2 + some(2)
		case Behind:
			e.Step = -some(2)
		}
		s.Events = append(s.Events, e)
	}
	if exposed {
		e := Event{At: some(3), What: []EventKind{Ahead, Wipe, Restore}[rnd.IntN(3)]}
		switch e.What {
		case Ahead:
			e.Step = some(2)
		case Restore:
			e.For = min(e.At, some(1))
		}
		s.Events = append(s.Events, e)
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return int(a.At - b.At) })
	return s
}

// ends returns the end of the last event.
func (s Schedule) ends() (end time.Duration) {
	for _, e := range s.Events {
		end = max(end, e.At+e.For)
	}
	return end
}

// silent returns the first time at or after a time at which a client is not cut
// off: that time, or the end of the silences that cover it.
func (s Schedule) silent(client int, at time.Duration) time.Duration {
	for _, e := range s.Events {
		if e.What == Silence && e.Client == client && e.At <= at && at < e.At+e.For {
			at = e.At + e.For
		}
	}
	return at
}

// dead reports whether a client has been killed by a time.
func (s Schedule) dead(client int, at time.Duration) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.What == Death && e.Client == client && e.At <= at })
}

// out reports whether the store refuses to serve at a time.
func (s Schedule) out(at time.Duration) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.What == Outage && e.At <= at && at < e.At+e.For })
}
