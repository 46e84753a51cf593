// Package memlock keeps queues of tickets in the memory of one process. It is
// the driver of the scheme "memory", and the executable specification of the
// seam: where package driver leaves a question open, the behaviour of memlock
// is the answer.
//
// Its answers beyond the text of package driver are:
//
//   - A queue is one list of places in order of arrival. The places that hold
//     are always the first ones, because grants are made in order.
//   - A place has one ticket, or several of one named owner, each with a
//     deadline of its own. The place lasts as long as its last ticket.
//   - A ticket expires at its deadline, for itself at once: its own request
//     then finds it Gone, whether or not another request dropped it before.
//     Others see the ticket until the queue reaches it: a holder, a waiter at
//     the head, or the waiters directly before the one that a request is about.
//   - A ticket that was broken, that expired, or that left with JoinPending set
//     is remembered for [TombstoneTTL], so that a late Join of its id finds it
//     Gone. A ticket that left otherwise, or was refused with wait=false, is
//     not.
//   - Break and a grant are pushed, an expiry is not. A ticket granted by its
//     own request is not pushed either: the reply reports the grant.
//   - MaxSteps and MaxDrops count for each ticket of a batch. When either is
//     used up, a waiter behind the remaining tickets gets a Recheck of a
//     millisecond.
//
// Nothing here uses timers or goroutines: a request drops the tickets that have
// expired since the one before. A Store made in a testing/synctest bubble
// therefore lives by the bubble's clock, and may be used in that bubble only.
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
	Marks:   true,
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
	ctx    context.Context
	notify func(string, driver.Status)
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// New returns a new client of s. The drivers of one store are independent
// clients, as processes are at a server.
func New(s *Store) *Driver { return &Driver{store: s} }

var named struct {
	sync.Mutex
	stores map[string]*Store
}

// Open returns a new client of the store of this name. All drivers that the
// process opens by one name share the store, which lasts as long as the
// process. The empty name is a new store every time.
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
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	r := d.store.begin()
	st, err := r.join(d, t, wait)
	r.end()
	return st, err
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.each(ctx, refs, false)
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.each(ctx, refs, true)
}

func (d *Driver) each(ctx context.Context, refs []driver.Ref, leave bool) ([]driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	statuses := make([]driver.Status, len(refs))
	r := d.store.begin()
	for i := range refs {
		r.steps, r.drops = 0, 0
		if leave {
			statuses[i] = r.leave(&refs[i])
		} else {
			statuses[i] = r.renew(&refs[i])
		}
	}
	r.end()
	return statuses, nil
}

// Watch implements [driver.Driver]. The goroutine of the client that caused a
// push calls notify, after its request is done and before its method returns: a
// caller must not hold a mutex that notify takes.
func (d *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	d.watch.Store(&watcher{ctx, notify})
	return nil
}

func (d *Driver) push(id string, st driver.Status) {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
		w.notify(id, st)
	}
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := d.checkOpen(ctx); err != nil {
		return driver.Queue{}, err
	}
	r := d.store.begin()
	dq := r.inspect(name)
	r.end()
	return dq, nil
}

// Names implements [driver.Driver]. It yields the names in use when it began.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.checkOpen(ctx); err != nil {
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
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	r := d.store.begin()
	err := r.breakTicket(name, ticketID)
	r.end()
	return err
}

// Close implements [driver.Driver]. The store keeps its tickets.
func (d *Driver) Close() error {
	d.closed.Store(true)
	d.watch.Store(nil)
	return nil
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.checkOpen(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("memory:%s@%p", d.store.name, d.store), nil
}

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.checkOpen(ctx); err != nil {
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

func (d *Driver) checkOpen(ctx context.Context) error {
	if d.closed.Load() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}
