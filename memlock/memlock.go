// Package memlock keeps lines of tickets in the memory of one process. It is
// the driver of the scheme "memory", and the executable specification of the
// seam: where package driver leaves a question open, what memlock does is the
// answer.
//
// The answers it gives beyond the text of package driver:
//
//   - A line is one list of places in order of arrival. Those that hold are
//     always its first ones, because grants are made in order.
//   - A place has one ticket, or several of one named owner, each with a
//     deadline of its own. The place lasts as long as its last ticket.
//   - A ticket's time is over at its deadline, for itself at once: its own
//     request then finds it Gone, whether or not somebody dropped it before.
//     Others see it until the line reaches it: a holder, a waiter at the head,
//     or the waiters directly before the one who asks.
//   - A ticket that was broken, whose time was over, or that left with Unsure
//     set is remembered for [RequestAge], so that a late Join of its id finds
//     it Gone. What left otherwise, or was refused with wait=false, is not.
//   - Break and a grant are pushed, the end of a ticket's time is not. A ticket
//     granted by its own request is not pushed either: the answer says it.
//   - MaxSteps counts for each ticket of a batch. When it is used up, whoever
//     waits behind the rest gets a Recheck of a millisecond.
//
// Nothing here uses timers or goroutines: time passes when somebody asks. A
// Store made in a testing/synctest bubble therefore lives by the bubble's
// clock, and has to be used in that bubble only.
package memlock

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// MinTTL and MaxTTL are the shortest and the longest TTL.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

var traits = driver.Traits{
	Scheme:  "memory",
	Fencing: true,
	Shared:  true,
	Owner:   true,
	Fair:    true,
	Push:    true,
	// The store is the process: it has no restart and no other server to
	// survive.
	MinTTL: MinTTL,
	MaxTTL: MaxTTL,
}

// Driver is one client of a [Store].
type Driver struct {
	store  *Store
	closed atomic.Bool
	watch  atomic.Pointer[watcher]
}

type watcher struct {
	ctx   context.Context
	moved func(string, driver.Place)
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// New returns a new client of s. Drivers of one store are to each other what
// processes are on a server.
func New(s *Store) *Driver { return &Driver{store: s} }

var named struct {
	sync.Mutex
	stores map[string]*Store
}

// Open returns a new client of the store of this name, which is shared by all
// in the process that open the name, and lasts as long as the process. The
// empty name is a store of its own every time.
func Open(name string) *Driver {
	if name == "" {
		return New(NewStore())
	}
	named.Lock()
	defer named.Unlock()
	s := named.stores[name]
	if s == nil {
		s = NewStore()
		s.name = name
		if named.stores == nil {
			named.stores = make(map[string]*Store)
		}
		named.stores[name] = s
	}
	return New(s)
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return driver.Place{}, err
	}
	r := d.store.begin()
	p, err := r.join(d, t, wait)
	r.end()
	return p, err
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return d.each(ctx, refs, false)
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return d.each(ctx, refs, true)
}

func (d *Driver) each(ctx context.Context, refs []driver.Ref, leave bool) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Place, len(refs))
	r := d.store.begin()
	for i := range refs {
		r.steps = 0
		if leave {
			places[i] = r.leave(&refs[i])
		} else {
			places[i] = r.renew(&refs[i])
		}
	}
	r.end()
	return places, nil
}

// Watch implements [driver.Driver]. Pushes are calls of moved by the goroutine
// of the client that caused them, after its request is done and before its
// method returns: a caller must not hold a lock that moved takes.
func (d *Driver) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	d.watch.Store(&watcher{ctx, moved})
	return nil
}

func (d *Driver) push(id string, p driver.Place) {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
		w.moved(id, p)
	}
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Line, error) {
	if err := d.before(ctx); err != nil {
		return driver.Line{}, err
	}
	r := d.store.begin()
	line := r.inspect(name)
	r.end()
	return line, nil
}

// Names implements [driver.Driver]. It yields what was there when it began.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.before(ctx); err != nil {
			yield("", err)
			return
		}
		r := d.store.begin()
		names := r.names(prefix)
		r.end()
		for _, name := range names {
			if ctx.Err() != nil {
				yield("", driver.Wrap(driver.Unknown, context.Cause(ctx)))
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	r := d.store.begin()
	err := r.breakTicket(name, ticketID)
	r.end()
	return err
}

// Close implements [driver.Driver]. The store stays as it is.
func (d *Driver) Close() error {
	d.closed.Store(true)
	d.watch.Store(nil)
	return nil
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.before(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("memory:%s@%p", d.store.name, d.store), nil
}

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	clock := driver.Finding{Topic: "clock", Detail: "tokens grow with the clock"}
	if d.store.Clock().Before(driver.Epoch) {
		clock.Level = driver.Warning
		clock.Detail = "the clock is before " + driver.Epoch.Format(time.DateOnly) + ": tokens begin at 1 with every process"
		clock.Advice = "set the system's clock"
	}
	return []driver.Finding{
		{Topic: "reach", Detail: "the store is this process: no other process shares its locks"},
		clock,
	}, nil
}

func (d *Driver) before(ctx context.Context) error {
	if d.closed.Load() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}
