package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Recorder notes the requests to one store. Its zero value is of no use.
type Recorder struct {
	seed   uint64
	began  time.Time
	server bool // see NewServerRecorder
	cut    bool // see NewCutRecorder

	order sync.Mutex // held during each request, so that the events have the store's order

	mu      sync.Mutex // guards what follows; the store may send pushes during a request
	stepped time.Duration
	clients int
	events  []Event
	at      []time.Time // of each event, by a clock that is never set
	holds   int         // that an Observer was told of
}

// NewRecorder returns a Recorder for the run of a seed. In a bubble of
// testing/synctest, call it there: it takes times from the process's clock.
func NewRecorder(seed uint64) *Recorder { return &Recorder{seed: seed, began: time.Now()} }

// NewServerRecorder returns a Recorder for a store on a server, whose clock is not
// the process's. It carries each request out to its end, whatever becomes of the
// request's context, and notes how long that took: its effect lies in between.
func NewServerRecorder(seed uint64) *Recorder {
	r := NewRecorder(seed)
	r.server = true
	return r
}

// NewCutRecorder returns a Recorder for clients that lose their connections below it. A
// request ends with its context, as for any client, and an outcome that the client is
// not told is noted as unknown: its effect may come later, or never.
func NewCutRecorder(seed uint64) *Recorder {
	r := NewServerRecorder(seed)
	r.cut = true
	return r
}

// within returns the context of a request.
func (r *Recorder) within(ctx context.Context) context.Context {
	if r.server && !r.cut {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Events returns what was noted so far.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Event(nil), r.events...)
}

// StepClock notes that step sets the store's clock by d, and calls it.
func (r *Recorder) StepClock(d time.Duration, step func(time.Duration)) {
	r.order.Lock()
	defer r.order.Unlock()
	r.add(Event{Kind: Step, Step: int64(d)})
	r.mu.Lock()
	r.stepped += d
	r.mu.Unlock()
	step(d)
}

// Wrap returns d with the recorder before it. All drivers that a Recorder wraps
// must be of one store.
func (r *Recorder) Wrap(d driver.Driver) *Driver {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients++
	return &Driver{d: d, r: r, client: r.clients}
}

// add notes events, and returns the place of the first one, which stays the same. No
// other event comes between them, such as a push that the store sends meanwhile.
func (r *Recorder) add(events ...Event) (first int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = len(r.events)
	for _, e := range events {
		e.Version, e.Seed, e.Seq = Version, r.seed, int64(len(r.events)+1)
		e.At = int64(time.Since(r.began) + r.stepped)
		r.events, r.at = append(r.events, e), append(r.at, time.Now())
	}
	return first
}

// arrange brings n answered Leaves of one call, from first on, into an order in which the
// store may have carried them out: a server takes the tickets of a call in an order of
// its own. A ticket that waited left before the ones that held, and these left in the
// order of their grants.
func (r *Recorder) arrange(first, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.events[first : first+n]
	now := slices.Clone(was)
	rank := func(e *Event) uint64 {
		switch {
		case e.State == driver.Waiting.String():
			return 0
		case e.State != driver.Held.String():
			return 1
		}
		return 2 + e.Token
	}
	slices.SortStableFunc(now, func(x, y Event) int { return cmp.Compare(rank(&x), rank(&y)) })
	for i := range now {
		now[i].Seq, now[i].At, now[i].Took = was[i].Seq, was[i].At, was[i].Took
	}
	copy(was, now)
}

// change changes an event whose answer has come.
func (r *Recorder) change(i int, with func(*Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := &r.events[i]; r.server {
		e.Took = int64(time.Since(r.began)+r.stepped) - e.At
	}
	with(&r.events[i])
}

// Driver is a driver whose requests are noted.
type Driver struct {
	d      driver.Driver
	r      *Recorder
	client int

	mu     sync.Mutex
	traits string // the answer noted last
}

var _ driver.Driver = (*Driver)(nil)

// Traits implements [driver.Driver]. An answer is noted if it is not the same as
// the one before.
func (d *Driver) Traits() driver.Traits {
	t := d.d.Traits()
	text, err := json.Marshal(t)
	if err != nil {
		text = []byte(err.Error())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.traits != string(text) {
		d.traits = string(text)
		d.r.add(Event{Kind: Traits, Client: d.client, Traits: d.traits})
	}
	return t
}

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.r.order.Lock()
	defer d.r.order.Unlock()
	e := Event{Kind: Join, Client: d.client, Wait: wait}
	e.request(t)
	i := d.r.add(e)
	carry(ctx, i, 1)
	s, err := d.d.Join(d.r.within(ctx), t, wait)
	d.r.change(i, func(e *Event) { e.answer(s, err) })
	return s, err
}

// Renew implements [driver.Driver]. Each ticket of a call has an event of its own.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.batch(ctx, Renew, refs, d.d.Renew)
}

// Leave implements [driver.Driver]. Each ticket of a call has an event of its own.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.batch(ctx, Leave, refs, d.d.Leave)
}

func (d *Driver) batch(ctx context.Context, kind Kind, refs []driver.Ref, send func(context.Context, []driver.Ref) ([]driver.Status, error)) ([]driver.Status, error) {
	d.r.order.Lock()
	defer d.r.order.Unlock()
	events := make([]Event, len(refs))
	for n, ref := range refs {
		events[n] = Event{Kind: kind, Client: d.client, Pending: ref.JoinPending}
		events[n].request(ref.Ticket)
	}
	first := d.r.add(events...)
	carry(ctx, first, len(refs))
	all, err := send(d.r.within(ctx), refs)
	for n := range refs {
		d.r.change(first+n, func(e *Event) {
			switch {
			case err != nil:
				e.fail(err)
			case n >= len(all):
				e.fail(driver.Errorf(driver.Unknown, "there is no answer for this ticket"))
			default:
				e.answer(all[n], nil)
			}
		})
	}
	if kind == Leave && d.r.server {
		d.r.arrange(first, len(refs))
	}
	return all, err
}

// Watch implements [driver.Driver].
func (d *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	d.r.order.Lock()
	defer d.r.order.Unlock()
	i := d.r.add(Event{Kind: Watch, Client: d.client})
	err := d.d.Watch(ctx, func(id string, s driver.Status) {
		e := Event{Kind: Gap, Client: d.client}
		if id != "" {
			e.Kind, e.ID = Push, id
			e.answer(s, nil)
		}
		d.r.add(e)
		notify(id, s)
	})
	d.r.change(i, func(e *Event) { e.fail(err) })
	return err
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	d.r.order.Lock()
	defer d.r.order.Unlock()
	i := d.r.add(Event{Kind: Inspect, Client: d.client, Name: name})
	q, err := d.d.Inspect(d.r.within(ctx), name)
	d.r.change(i, func(e *Event) {
		for _, t := range q.Tickets {
			e.Tickets = append(e.Tickets, Entry{ID: t.ID, State: t.State.String(), Token: t.Token, Left: int64(t.Left)})
		}
		e.fail(err)
	})
	return q, err
}

// Names implements [driver.Driver]. It reads all names before it yields one.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := d.names(ctx, prefix)
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

func (d *Driver) names(ctx context.Context, prefix string) (names []string, err error) {
	d.r.order.Lock()
	defer d.r.order.Unlock()
	i := d.r.add(Event{Kind: Names, Client: d.client, Name: prefix})
	for name, e := range d.d.Names(d.r.within(ctx), prefix) {
		if err = e; err == nil {
			names = append(names, name)
		}
	}
	d.r.change(i, func(e *Event) { e.Found = names; e.fail(err) })
	return names, err
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	d.r.order.Lock()
	defer d.r.order.Unlock()
	i := d.r.add(Event{Kind: Break, Client: d.client, Name: name, ID: ticketID})
	err := d.d.Break(d.r.within(ctx), name, ticketID)
	d.r.change(i, func(e *Event) { e.fail(err) })
	return err
}

// Close implements [driver.Driver].
func (d *Driver) Close() error {
	d.r.order.Lock()
	defer d.r.order.Unlock()
	i := d.r.add(Event{Kind: Close, Client: d.client})
	err := d.d.Close()
	d.r.change(i, func(e *Event) { e.fail(err) })
	return err
}
