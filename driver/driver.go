// Package driver is the seam between Holdfast's core and a store.
//
// A lock is a line. Whoever wants it takes a [Ticket]; a ticket holds when the
// units of all tickets up to and including it fit the line's limit. A driver
// keeps lines in a store and answers where a ticket stands. Everything that is
// the same for every store (waiting, pacing, renewing, judging loss, handing
// over between goroutines) is done once, by the core, above this package.
//
// Users of Holdfast do not need this package; authors of drivers do. The
// numbered lists below are duties (the driver must) and guarantees (the driver
// may rely on). Package drivertest checks the duties, and refers to them by
// method and number, as in "Join 3".
//
// Package memlock is the specification in executable form: where a sentence
// here leaves a question open, what memlock does is the answer.
package driver

import (
	"context"
	"iter"
	"time"
)

// Driver keeps lines of tickets in a store. One Driver belongs to one client
// of the core.
//
// For all methods:
//
//  1. A driver is safe for concurrent use by many goroutines.
//  2. A call returns within 50 ms of its context's end. What a call ended by
//     its context did is unknown, and its error says so (see [Class]).
//  3. No call waits for a turn. A ticket costs no goroutine and no connection.
//  4. Drivers do not retry; the core does. Retries hidden in client libraries
//     are off, or harmless because every request is idempotent by ticket id.
//  5. Errors carry a [Class] (see [Error]); one that does not counts as
//     Unknown. No error contains a secret.
//  6. Every request that reads or changes a line first advances it: tickets
//     whose time is over are dropped where they are in the way, tickets whose
//     turn it is are granted in order, and those granted are told through
//     Watch. One request takes at most [MaxSteps] such steps.
//  7. The store's own clock decides when a ticket's time is over; no client's
//     wall clock is ever sent to it.
//  8. Guaranteed: one ticket is never in two Joins at once. Leave may overtake
//     a Renew of the same ticket. Leave overtakes a Join only with Ref.Unsure
//     set.
//  9. Guaranteed: names, owners and metadata passed [CheckName], [CheckOwner]
//     and [CheckMeta]; TTLs are within Traits; 0 < Units ≤ Limit.
type Driver interface {
	// Traits says what this driver can do.
	//
	//  1. The answer never changes once the driver is open.
	//  2. It sends nothing and does not block.
	Traits() Traits

	// Join takes a place in the line of t, or finds the one that t has.
	//
	//  1. Idempotent by t.ID: when the ticket has a place, Join renews and
	//     reports it, and takes no second one; when it was held it is still
	//     held with the same token.
	//  2. A ticket that is Gone stays Gone: a Join of an id that left with
	//     Ref.Unsure, or that was broken, answers Gone and changes nothing.
	//     Guaranteed: no Join of an id is sent, or still under way, after that
	//     id left without Unsure.
	//  3. Places are taken at the end of the line; nobody is overtaken, not by
	//     a reader, not with wait=false.
	//  4. wait=true answers Held or Waiting. wait=false answers Held or Gone,
	//     and leaves nothing behind when Gone, also no waiting place that the
	//     ticket had before.
	//  5. A grant of an exclusive ticket (Units == Limit) has a token greater
	//     than every token granted in this line before, ever, also after the
	//     store lost its data or went back to an older state, and not below
	//     t.Floor. Shared grants take tokens from the same sequence. Traits
	//     say where Fencing is not offered.
	//  6. The line's limit is the Limit of the tickets in it. While it has
	//     tickets, a Join with another Limit is refused with a [LimitError].
	//  7. When t.Owner is not empty and that owner already has a place, the
	//     ticket shares it: same State, same Token (also below t.Floor), no
	//     place of its own. It is
	//     refused with [ErrUpgrade] when it asks for more units than the place
	//     has. The place stays until the last ticket of the owner is gone.
	//     Only drivers with Traits.Owner are given such tickets.
	//  8. When t.Replaces is not nil, that ticket leaves in the same request,
	//     before the place is taken (so whoever waits is granted first). It is
	//     no error when it was gone already. Whether it leaves when the Join
	//     itself is refused is open: the core leaves it then. Guaranteed: it
	//     was never Unsure.
	//  9. Place.Lease is at least t.TTL when the place is taken or found, and
	//     the store keeps the place for t.TTL plus a grace of at most 4 %
	//     ([Keep]) counted from when it handled the request.
	// 10. A Waiting place has Recheck and Ahead where the store can tell, and
	//     Holder when known. A Gone answer to wait=false has Holder when known.
	// 11. A foreign value where the line should be (a key of another type, a
	//     row of an unknown layout) is an error of class Refused and is never
	//     overwritten.
	// 12. The driver may set t.Aux, until Join returns.
	Join(ctx context.Context, t *Ticket, wait bool) (Place, error)

	// Renew keeps the places of tickets, waiting and held alike.
	//
	//  1. The answers are in the order of refs, one for each, whatever became
	//     of the others. An error of one ticket is its Place.Err. The call's
	//     own error means that nothing was sent.
	//  2. Renew never creates a place: a ticket without one is Gone.
	//  3. It reports what it found, also a grant that happened meanwhile: this
	//     is how a lost push is repaired.
	//  4. A renewal refused because the ticket's time was over is Gone.
	//  5. It never shortens the time of another ticket.
	//  6. Guaranteed: all refs of one call have the same lane (Traits.Lane).
	Renew(ctx context.Context, refs []Ref) ([]Place, error)

	// Leave gives places up: it releases a hold or abandons a wait.
	//
	//  1. Answers as in Renew 1: Held for a ticket that held and was released
	//     by this call, Waiting for one whose waiting place this call removed,
	//     Gone for one that had none.
	//  2. Only the ticket itself leaves; no request, repeated or late, frees
	//     anybody else's place.
	//  3. It works when the store is out of memory, read-mostly or full, as
	//     long as the store can delete at all.
	//  4. With Ref.Unsure a Join of this ticket may still be on its way: the
	//     driver makes sure that it will have no effect, for the longest time
	//     a request can be under way. (A tombstone by id; or a clean-up that
	//     is repeated until it is confirmed.)
	//  5. The next tickets are granted, and told, by the same request.
	Leave(ctx context.Context, refs []Ref) ([]Place, error)

	// Watch starts the pushes: it returns once they flow, and they flow until
	// ctx ends or the driver is closed.
	//
	//  1. moved(id, place) says that the store has granted (Held, with Token)
	//     or removed (Gone) the ticket id. It is a past fact of the store, not
	//     a wish; it may come before Join's own answer, twice, late or never.
	//  2. Lease 0 on a push means unchanged: a grant never extends a lease.
	//  3. After any gap in the subscription the driver subscribes again by
	//     itself and then calls moved("", Place{}): the core asks for all its
	//     waiting tickets.
	//  4. A driver without Traits.Push returns nil and never calls moved.
	//  5. Guaranteed: Watch is called again only after it returned an error,
	//     and has returned without one before the first Join with wait=true.
	//     moved never blocks and
	//     may be called from any goroutine, but not while a lock is held that
	//     a method of the driver needs.
	Watch(ctx context.Context, moved func(id string, p Place)) error

	// Inspect shows the line of a name, holders first, then waiters in order.
	//
	//  1. A line that does not exist has no tickets; that is no error.
	//  2. It changes nothing but what Driver 6 says.
	Inspect(ctx context.Context, name string) (Line, error)

	// Names yields the names of lines that have tickets and begin with prefix.
	//
	//  1. The order is undefined; a name that is there from start to end is
	//     yielded exactly once.
	//  2. An error ends the sequence; it comes with an empty name.
	//  3. Keys of the store that are not Holdfast's are passed over.
	Names(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Break removes one ticket, whoever's it is: the operator's override.
	//
	//  1. A line without that ticket answers [ErrNoTicket].
	//  2. The ticket's client learns of it by push where there is push, and at
	//     the latest with its next renewal.
	//  3. The next tickets are granted, and told, by the same request.
	Break(ctx context.Context, name, ticketID string) error

	// Close ends pushes and frees what the driver itself opened.
	//
	//  1. No goroutine, connection or file of the driver survives it. A client
	//     that the user opened is left open.
	//  2. It does not give tickets up; the core has done that before.
	//  3. Later calls answer [ErrClosed]; a second Close answers nil.
	Close() error
}

// Ticket is one try to hold a line. The core makes it; all fields but Aux are
// never changed after the first Join.
type Ticket struct {
	ID    string // fresh for every try: "<uuid of the client>:<decimal number>"
	Owner string // the owner the user named; empty means that the ticket owns itself
	Name  string // the line
	Units int64  // what it takes of the limit
	Limit int64  // 1 is a mutex, RWLimit a read/write lock, else a semaphore's size
	TTL   time.Duration
	Meta  string // who asks, as encoded by the core; opaque to stores, may be empty
	Floor uint64 // lowest acceptable token, 0 for any

	// Replaces is a held ticket of the same client and line that leaves in the
	// same request (Join 8). Nil for none.
	Replaces *Ticket

	// Aux is the driver's own: keys, revisions, paths. Set by Join.
	Aux any
}

// Exclusive says whether the ticket shares its line with nobody.
func (t *Ticket) Exclusive() bool { return t.Units == t.Limit }

// RWLimit is the limit of a read/write lock's line: readers take 1 unit,
// writers all of them.
const RWLimit int64 = 1 << 30

// MaxSteps bounds how many tickets one request drops or grants.
const MaxSteps = 64

// Ref is a ticket as one call of Renew or Leave sees it.
type Ref struct {
	*Ticket
	State  State // what the core believes; a hint, never to be decided by alone
	Unsure bool  // a Join went unanswered and may still take effect (Leave 4)
}

// State is where a ticket stands. It only ever moves up the list: Waiting,
// Held, Gone.
type State uint8

// The states of a ticket. The zero State is no state.
const (
	Waiting State = iota + 1 // has a place, not yet its turn
	Held                     // holds
	Gone                     // has no place (any more)
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

// Place is the store's answer about one ticket.
type Place struct {
	State State
	Token uint64 // of a Held ticket: greater than any before in this line; see MaxToken
	// Lease is how long the store is bound to keep the place, counted from
	// just before the request was sent. 0 on a push: unchanged.
	Lease time.Duration
	// Ahead is how many places are before a Waiting one, holders included;
	// -1 when the store does not tell.
	Ahead int
	// Recheck is when to ask for a Waiting ticket again, counted like Lease,
	// if nothing was heard: the time at which the store would drop the direct
	// predecessor, were it dead. 0: no need beyond the ordinary renewal.
	Recheck time.Duration
	// Holder is the metadata of (one of) those who hold, when known.
	Holder string
	// Err is this ticket's own error, in the answers of Renew and Leave.
	Err error
}

// Line is what Inspect saw.
type Line struct {
	Name    string
	Limit   int64   // 0 when there are no tickets
	Token   uint64  // the last token granted, 0 when not known
	Tickets []Entry // holders first, then waiters in order
}

// Entry is one ticket of a Line.
type Entry struct {
	ID    string
	Owner string
	State State
	Units int64
	Token uint64        // of a held ticket
	Left  time.Duration // until the store drops it unless it is renewed; negative when overdue
	Meta  string
}

// Traits says what a driver can do. They are data: the conformance suite, the
// tables in the documentation and the command line all read them, and nobody
// asks for a driver's name.
type Traits struct {
	Scheme    string // of its URLs, without the colon
	Fencing   bool   // exclusive tokens grow for ever, see Join 5
	Shared    bool   // limits above 1: read/write locks and semaphores
	Owner     bool   // named owners across processes
	Fair      bool   // strictly first in, first out
	Push      bool   // a release wakes the next waiter, in whatever process
	PushLocal bool   // pushes reach waiters on the same machine only

	SurvivesRestart  bool // holds survive a restart of the store
	SurvivesFailover bool // holds survive the loss of one server of several

	MinTTL      time.Duration // shortest legal TTL
	MaxTTL      time.Duration // longest legal TTL
	Granularity time.Duration // of the store's expiry: how much later than its time a ticket may end

	// Lane groups names whose requests travel and fail together: a node, a
	// slot. Nil means a single lane.
	Lane func(name string) uint64 `json:"-"`
}

// Identifier is implemented by drivers that can say which store they speak to.
type Identifier interface {
	// Identity is equal for two drivers exactly if they speak to the same
	// store, database and prefix. It may block for a round trip.
	Identity(ctx context.Context) (string, error)
}

// Checker is implemented by drivers that can examine their store.
type Checker interface {
	// Check looks for what would make the lock weaker than promised, and says
	// what to change. It leaves nothing behind. An error means that the store
	// could not be examined.
	Check(ctx context.Context) ([]Finding, error)
}

// Noticer is implemented by drivers that look at their store when they are
// opened, and may find that it is set up so that a promise does not hold.
type Noticer interface {
	// Notices returns what was found then. It sends nothing.
	Notices() []Finding
}

// Finding is one thing that Check looked at.
type Finding struct {
	Topic  string // a word or two: "eviction", "round trip"
	Level  Level
	Detail string // what was seen
	Advice string // what to change; empty when Level is OK
}

// Level grades a Finding.
type Level uint8

// The levels, from good to bad.
const (
	OK      Level = iota // as it should be
	Warning              // weaker than it could be; the promises hold with the exception named
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
