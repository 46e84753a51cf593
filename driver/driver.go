// Package driver is the seam between Holdfast's core and a store.
//
// Every lock has a queue of tickets, in order of arrival. A client that wants
// the lock joins its queue with a [Ticket]; a ticket holds the lock when the
// units of all tickets up to and including it fit the queue's limit. A driver
// keeps the queues in a store and answers with the [Status] of a ticket. The
// core, above this package, does once all that is the same for every store:
// it waits, sets the pace, renews, judges losses, and hands over between
// goroutines.
//
// Authors of drivers need this package; users of Holdfast do not. The numbered
// lists below are duties (the driver must) and guarantees (the driver may rely
// on). Package drivertest checks the duties, and refers to them by method and
// number, as in "Join 3".
//
// Package memlock is the specification in executable form: where a sentence
// here leaves a question open, the behaviour of memlock decides.
package driver

import (
	"context"
	"iter"
	"time"
)

// Driver keeps queues of tickets in a store. One Driver belongs to one client
// of the core.
//
// For all methods:
//
//  1. A driver is safe for concurrent use by many goroutines.
//  2. A call returns within 50 ms of its context's end. The outcome of a call
//     that its context ended is unknown, and its error says so (see [Class]).
//  3. No call waits for a turn. A ticket costs no goroutine and no connection.
//  4. Drivers do not retry; the core does. Retries hidden in client libraries
//     are off, or harmless because every request is idempotent by ticket id.
//     To open a lost connection anew, within the request and its context, is
//     no retry: a store that serves again serves the next request. Nor is a
//     write that the store refused because another client came first.
//  5. Errors carry a [Class] (see [Error]); an error without one counts as
//     Unknown. No error contains a secret.
//  6. Every request that reads or changes a queue first advances it: it drops
//     expired tickets where they are in the way, grants the tickets whose turn
//     it is, in order, and notifies their clients through Watch. One request
//     drops at most MaxSteps holders and grants at most MaxSteps tickets,
//     [MaxSteps] in all. Beside these it drops at least [MinDrops] expired
//     waiters that are in the way, if there are so many, and at most
//     [MaxDrops]: thousands of dead waiters delay a living one by few requests.
//  7. The store's own clock decides when a ticket's time is over; no client's
//     wall clock is ever sent to it.
//  8. Guaranteed: one ticket is never in two Joins at once. Leave may overtake
//     a Renew of the same ticket. Leave overtakes a Join only with Ref.JoinPending
//     set.
//  9. Guaranteed: names, owners and metadata passed [CheckName], [CheckOwner]
//     and [CheckMeta]; TTLs are within Traits; 0 < Units ≤ Limit.
type Driver interface {
	// Traits returns the abilities and bounds of this driver.
	//
	//  1. The answer never changes once the driver is open.
	//  2. It sends nothing and does not block.
	Traits() Traits

	// Join takes a place in the queue of t, or finds the place that t has.
	//
	//  1. Join is idempotent by t.ID: if the ticket has a place, Join renews
	//     and reports it, and takes no second one; a ticket that was held is
	//     still held, with the same token.
	//  2. A ticket that is Gone stays Gone: a Join of an id that left with
	//     Ref.JoinPending, or that was broken, answers Gone and changes nothing.
	//     Guaranteed: no Join of an id is sent, or still under way, after that
	//     id left without JoinPending.
	//  3. Join takes a place at the end of the queue and overtakes nobody: no
	//     reader does, and no ticket with wait=false.
	//  4. wait=true answers Held or Waiting. wait=false answers Held or Gone,
	//     and leaves nothing behind when Gone, not even a waiting place that
	//     the ticket had before.
	//  5. A grant of an exclusive ticket (Units == Limit) has a token greater
	//     than every token granted in this queue before, ever, also after the
	//     store lost its data or went back to an older state, and not below
	//     t.MinToken. Shared grants take tokens from the same sequence. Traits
	//     say where Fencing is not offered.
	//  6. The queue's limit is the Limit of the tickets in it. While it has
	//     tickets, a Join with another Limit is refused with a [LimitError].
	//  7. If t.Owner is not empty and that owner already has a place, the
	//     ticket shares it: same State, same Token (also below t.MinToken), no
	//     place of its own. Join refuses it with [ErrUpgrade] if it asks for
	//     more units than the place has. The place stays until the last ticket
	//     of the owner is gone. Guaranteed: only drivers with Traits.Owner get
	//     such tickets.
	//  8. If t.Replaces is not nil, that ticket leaves in the same request,
	//     before the new place is taken, so that earlier waiters are granted
	//     first. A ticket that was gone already is no error. The driver may
	//     remove it or leave it when the Join itself fails: the core sends a
	//     Leave then. So a store may need a request of its own for it. Guaranteed: it was never JoinPending.
	//  9. Status.Lease is at least t.TTL when the place is taken or found, and
	//     the store keeps the place for t.TTL plus a grace of at most 4 %
	//     ([Keep]) counted from when it handled the request.
	// 10. The Status of a Waiting ticket has Recheck and Ahead where the store
	//     can tell, and Holder when known. A Gone answer to wait=false has
	//     Holder when known and, where the store can tell, the Recheck of that
	//     holder.
	// 11. A foreign value in the queue's place (a key of another type, a row of
	//     an unknown layout) is an error of class Refused and is never
	//     overwritten.
	// 12. The driver may set t.DriverData, until Join returns.
	Join(ctx context.Context, t *Ticket, wait bool) (Status, error)

	// Renew extends the leases of tickets, waiting and held alike.
	//
	//  1. The answers are in the order of refs, one for each, independent of
	//     each other. An error of one ticket is its Status.Err. The call's own
	//     error means that nothing was sent.
	//  2. Renew never creates a place: a ticket without one is Gone.
	//  3. It reports the state that it found, also a grant that happened in
	//     the meantime: this repairs a lost push.
	//  4. A renewal refused because the ticket had expired is Gone.
	//  5. It never shortens the lease of another ticket.
	//  6. Guaranteed: all refs of one call have the same lane (Traits.Lane).
	//  7. Gone is the store's word, here, in Join and in a push. A driver that
	//     cannot reach its store answers with an error, however long that
	//     lasts: the core alone judges a lease by the local clock.
	Renew(ctx context.Context, refs []Ref) ([]Status, error)

	// Leave gives places up: it releases a hold or ends a wait.
	//
	//  1. Answers as in Renew 1: Held for a ticket that held and was released
	//     by this call, Waiting for one whose waiting place this call removed,
	//     Gone for one that had none.
	//  2. Only the ticket itself leaves; no request, repeated or late, frees
	//     another ticket's place.
	//  3. It works when the store is out of memory, read-mostly or full, as
	//     long as the store can delete at all.
	//  4. With Ref.JoinPending a Join of this ticket may still be on its way: the
	//     driver makes sure that it will have no effect, for the longest time
	//     a request can be under way: by a tombstone of the id, or by a
	//     clean-up that is repeated until it is confirmed.
	//  5. The same request grants the next tickets and notifies their clients.
	Leave(ctx context.Context, refs []Ref) ([]Status, error)

	// Watch starts the pushes: it returns once they flow, and they flow until
	// ctx ends or the driver is closed.
	//
	//  1. notify(id, status) reports that the store has granted (Held, with
	//     Token) or removed (Gone) the ticket id. It reports a past fact of the
	//     store; it may come before Join's own answer, twice, late or never.
	//  2. Lease 0 on a push means unchanged: a grant never extends a lease.
	//  3. After any gap in the subscription the driver subscribes again by
	//     itself and then calls notify("", Status{}): the core renews all its
	//     waiting tickets.
	//  4. A driver without Traits.Push returns nil and never calls notify.
	//  5. Guaranteed: Watch is called again only after it returned an error, or
	//     its context ended before it returned. The core calls it before the
	//     first Join with wait=true. If Watch fails, the core goes on without
	//     pushes, renews its waiting tickets at a pace of its own, reports to
	//     its Observer, and calls Watch again later. So a Join with wait=true
	//     takes its place whether or not pushes flow. notify never blocks and
	//     may be called from any goroutine, but not under a mutex that a method
	//     of the driver needs.
	Watch(ctx context.Context, notify func(id string, s Status)) error

	// Inspect returns the queue of a name, holders first, then waiters in order.
	//
	//  1. A queue that does not exist has no tickets; that is no error.
	//  2. Inspect changes nothing, apart from the steps of Driver 6.
	Inspect(ctx context.Context, name string) (Queue, error)

	// Names yields the names of queues that have tickets and begin with prefix.
	//
	//  1. The order is undefined. A name that has tickets from start to end is
	//     yielded exactly once.
	//  2. An error ends the sequence; it comes with an empty name.
	//  3. Names skips keys of the store that are not Holdfast's.
	Names(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Break removes one ticket of any client: the operator's override.
	//
	//  1. A queue without that ticket answers [ErrNoTicket].
	//  2. The ticket's client learns of it by push where there is push, and at
	//     the latest with its next renewal.
	//  3. The same request grants the next tickets and notifies their clients.
	Break(ctx context.Context, name, ticketID string) error

	// Close ends the pushes and frees everything that the driver itself opened.
	//
	//  1. No goroutine, connection or file of the driver survives it. A client
	//     that the user opened stays open.
	//  2. It gives no ticket up; the core has done that before.
	//  3. Later calls answer [ErrClosed]; a second Close answers nil.
	//  4. Close waits for no answer of the store: it returns within 500 ms, and
	//     1 holds also while the store is silent. Requests on a client that the
	//     user opened, or in a file system, may take 2 s and then end with that.
	//     Guaranteed: the contexts of all calls have ended.
	Close() error
}

// Ticket is one attempt to take a lock. The core makes it, and changes no field
// after the first Join; DriverData alone may change, see there.
type Ticket struct {
	ID       string // fresh for every attempt: "<uuid of the client>:<decimal number>"
	Owner    string // the owner that the user named; empty: the ticket owns itself
	Name     string // of the lock
	Units    int64  // its part of the limit
	Limit    int64  // 1 is a mutex, RWLimit a read/write lock, else a semaphore's size
	TTL      time.Duration
	Meta     string // describes the client, as the core encodes it; opaque to stores, may be empty
	MinToken uint64 // the lowest acceptable token; 0: any

	// Replaces is a held ticket of the same client and queue that leaves in the
	// same request (Join 8). Nil: none.
	Replaces *Ticket

	// DriverData belongs to the driver, for keys, revisions, paths. Join may set
	// it, until it returns (Join 12).
	DriverData any
}

// Exclusive reports whether the ticket takes the whole limit, so that it holds
// alone.
func (t *Ticket) Exclusive() bool { return t.Units == t.Limit }

// RWLimit is the limit of a read/write lock: a reader takes 1 unit, a writer
// all of them.
const RWLimit int64 = 1 << 30

// MaxSteps is the most tickets that one request grants, or drops because they
// held: the two together.
const MaxSteps = 64

// One request drops MinDrops expired waiters where so many are in the way. It
// may drop more, but no more than MaxDrops. They are apart from MaxSteps.
const (
	MinDrops = 256
	MaxDrops = 1024
)

// Ref is a ticket in a call of Renew or Leave, with the core's knowledge of it.
type Ref struct {
	*Ticket
	State       State // the core's belief: a hint, which alone must decide nothing
	JoinPending bool  // a Join had no answer and may still take effect (Leave 4)
}

// State is a ticket's state at the store. It only moves forward: Waiting, Held,
// Gone.
type State uint8

// The states of a ticket. The zero State is no state.
const (
	Waiting State = iota + 1 // has a place; not its turn yet
	Held                     // holds the lock
	Gone                     // has no place, or no longer one
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Held:
		return "held"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// Status is the store's answer about one ticket. The zero Status has no state.
type Status struct {
	State State
	Token uint64 // of a Held ticket: greater than any before in this queue; see MaxToken
	// Lease is the time for which the store promises to keep the place,
	// counted from just before the request was sent. 0 on a push: unchanged.
	Lease time.Duration
	// Ahead is the number of places before a Waiting one, holders included;
	// -1 if the store does not tell. More than 100 may be an upper bound, where
	// a store would have to look at each of the places to count those that
	// were not given up.
	Ahead int
	// Recheck is when to renew a Waiting ticket early, counted like Lease,
	// unless a push comes before: the time at which the store would drop the
	// direct predecessor, were it dead. 0: the ordinary renewal is enough. Of a
	// Gone answer to wait=false, it is the time after which the store drops the
	// Holder unless that renews; 0: not known.
	Recheck time.Duration
	// Holder is the metadata of the holder, or of one of them, when known.
	Holder string
	// Err is the error of this ticket alone, in the answers of Renew and Leave.
	Err error
}

// Queue is a snapshot of one lock's tickets, as Inspect read it.
type Queue struct {
	Name    string
	Limit   int64   // 0 if there are no tickets
	Token   uint64  // the last token granted; 0 if not known
	Tickets []Entry // holders first, then waiters in order
}

// Entry is one ticket of a Queue.
type Entry struct {
	ID    string
	Owner string
	State State
	Units int64
	Token uint64        // of a held ticket
	Left  time.Duration // until the store drops it unless it is renewed; negative if overdue
	Meta  string
}

// Traits are the abilities and bounds of a driver. They are data: the
// conformance suite, the tables in the documentation and the command line read
// them, and no code asks for a driver's name.
type Traits struct {
	Scheme    string // of its URLs, without the colon
	Fencing   bool   // exclusive tokens only grow, see Join 5
	Shared    bool   // limits above 1: read/write locks and semaphores
	Owner     bool   // named owners across processes
	Fair      bool   // strictly first in, first out
	Push      bool   // a release wakes the next waiter, in any process
	PushLocal bool   // pushes reach waiters on the same machine only
	Marks     bool   // the driver is a Marker; needs Fencing

	SurvivesRestart  bool // holds survive a restart of the store
	SurvivesFailover bool // holds survive the loss of one server of several

	MinTTL      time.Duration // shortest legal TTL
	MaxTTL      time.Duration // longest legal TTL
	Granularity time.Duration // of the store's expiry: how late after its lease a ticket may end

	// Lane maps a name to its lane: names whose requests travel and fail
	// together, for a node or a slot. Nil: there is a single lane.
	Lane func(name string) uint64 `json:"-"`
}

// Identifier is implemented by drivers that can identify their store.
type Identifier interface {
	// Identity returns a text that is equal for two drivers exactly if they use
	// the same store, database and prefix. It may block for a round trip.
	Identity(ctx context.Context) (string, error)
}

// Checker is implemented by drivers that can examine their store.
type Checker interface {
	// Check looks for settings that make the lock weaker than promised, and
	// advises what to change. It leaves nothing behind. An error means that it
	// could not examine the store.
	Check(ctx context.Context) ([]Finding, error)
}

// Noticer is implemented by drivers that examine their store when they are
// opened, and may find settings under which a promise does not hold.
type Noticer interface {
	// Notices returns the findings of that examination. It sends nothing.
	Notices() []Finding
}

// Finding is the result of one examination by Check.
type Finding struct {
	Topic  string // a word or two: "eviction", "round trip"
	Level  Level
	Detail string // the observation
	Advice string // the change to make; empty if Level is OK
}

// Level grades a Finding.
type Level uint8

// The levels, from good to bad.
const (
	OK      Level = iota // as it should be
	Warning              // weaker than it could be; the promises hold but for the exception named
	Problem              // a promise does not hold, or the lock does not work
)

// String returns "ok", "warning" or "problem".
func (l Level) String() string {
	switch l {
	case OK:
		return "ok"
	case Warning:
		return "warning"
	}
	return "problem"
}
