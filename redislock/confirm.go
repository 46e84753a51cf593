package redislock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// ErrUnconfirmed is in the errors of joins whose grant too few replicas have
// confirmed in time. It was given back; asking again is all there is to do.
var ErrUnconfirmed = errors.New("too few replicas have confirmed the grant")

// confirmation is what is asked of replicas before a grant is shown, and what
// is known of those that were asked. All servers of a driver share it.
//
// The client that was granted writes to its ticket, and then waits for as many
// replicas as were asked for to have that write, and so the grant before it. A
// ticket is never confirmed and given back at once: both come from one verdict.
type confirmation struct {
	replicas int
	within   time.Duration

	mu       sync.Mutex
	waiting  map[string]*driver.Ticket // of whom a push may tell
	verdicts map[string]*verdict
}

// verdict is what became of the confirmation of one ticket.
type verdict struct {
	done chan struct{}
	err  error
}

// defaultWithin is how long replicas have, if that is not said.
const defaultWithin = time.Second

// newConfirmation returns nil for no replicas.
func newConfirmation(replicas int, within time.Duration) *confirmation {
	if replicas == 0 {
		return nil
	}
	if within == 0 {
		within = defaultWithin
	}
	return &confirmation{replicas: replicas, within: within,
		waiting: make(map[string]*driver.Ticket), verdicts: make(map[string]*verdict)}
}

// awaits notes a ticket that a push may be about.
func (c *confirmation) awaits(t *driver.Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[t.ID] = t
}

// settled notes that none will be, or that it came.
func (c *confirmation) settled(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// forget is for tickets that are gone.
func (c *confirmation) forget(refs []driver.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range refs {
		delete(c.waiting, r.ID)
		delete(c.verdicts, r.ID)
	}
}

// confirm returns nil once replicas have the grant of a ticket. With
// ErrUnconfirmed it has been given back; with another error it is not known
// what became of it.
func (d *Driver) confirm(ctx context.Context, t *driver.Ticket) error {
	c := d.confirms
	c.mu.Lock()
	v := c.verdicts[t.ID]
	if v == nil {
		v = &verdict{done: make(chan struct{})}
		c.verdicts[t.ID] = v
		if !d.begin(func() { d.judge(t, v) }) {
			delete(c.verdicts, t.ID)
			c.mu.Unlock()
			return d.cutErr()
		}
	}
	c.mu.Unlock()
	select {
	case <-v.done:
		return v.err
	case <-ctx.Done():
		return ended(ctx)
	case <-d.done:
		return d.cutErr()
	}
}

// judge asks the replicas, and gives the ticket back when they do not confirm.
func (d *Driver) judge(t *driver.Ticket, v *verdict) {
	c := d.confirms
	within := min(c.within, max(t.TTL/10, time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), within+openLimit)
	defer cancel()
	n, err := besideOn(ctx, d, &d.waits, func(conn link.Conn) (int64, error) {
		return d.wait(conn, t, within)
	})
	if err == nil && n < int64(c.replicas) {
		err = driver.Wrap(driver.Unavailable, ErrUnconfirmed)
		if left := firstOf(d.leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})); left != nil {
			err = driver.Errorf(driver.Unknown, "%w, and could not be asked to give it back: %w", ErrUnconfirmed, left)
		}
	}
	c.mu.Lock()
	if err != nil && c.verdicts[t.ID] == v {
		delete(c.verdicts, t.ID) // another try is another verdict
	}
	c.mu.Unlock()
	v.err = err
	close(v.done)
}

// firstOf is the error of a call about one ticket.
func firstOf(ps []driver.Place, err error) error {
	if err != nil {
		return err
	}
	return ps[0].Err
}

// wait writes to the ticket and returns how many replicas have that.
func (d *Driver) wait(conn link.Conn, t *driver.Ticket, within time.Duration) (int64, error) {
	refs, places := []driver.Ref{{Ticket: t, State: driver.Held}}, make([]driver.Place, 1)
	b := &batch{other: []int{0}}
	if plain(t) {
		b = &batch{quick: []int{0}}
	}
	replies, err := runAll(conn, []run{d.renewal(refs, b)})
	if err != nil {
		return 0, err
	}
	if err := replies[0].Err; err != nil {
		return 0, err
	}
	if lost := read(refs, places, b, &replies, 0, nil); len(lost) > 0 || places[0].State == driver.Gone {
		return 0, nil // to leave is then without effect
	}
	if places[0].Err != nil {
		return 0, places[0].Err
	}
	r, err := conn.Do("WAIT", strconv.Itoa(d.confirms.replicas), strconv.FormatInt(max(within.Milliseconds(), 1), 10))
	if err != nil {
		return 0, err
	}
	return r.Int()
}

// confirmed is what is shown of a place that the store has told of. shown says
// that it was shown before.
func (d *Driver) confirmed(ctx context.Context, t *driver.Ticket, p driver.Place) (driver.Place, error) {
	if d.confirms == nil || p.State != driver.Held {
		return p, nil
	}
	if err := d.confirm(ctx, t); err != nil {
		return driver.Place{}, err
	}
	d.confirms.settled(t.ID)
	return p, nil
}

// pushed tells of a push, once it is confirmed where it has to be.
func (d *Driver) pushed(id string, p driver.Place, tell func(string, driver.Place)) {
	c := d.confirms
	if c == nil || p.State != driver.Held {
		tell(id, p)
		return
	}
	c.mu.Lock()
	t := c.waiting[id]
	c.mu.Unlock()
	if t == nil {
		return // its renewal finds it
	}
	d.begin(func() {
		switch err := d.confirm(context.Background(), t); {
		case err == nil:
			c.settled(id)
			tell(id, p)
		case driver.ClassOf(err) == driver.Unavailable && errors.Is(err, ErrUnconfirmed):
			c.settled(id)
			tell(id, driver.Place{State: driver.Gone})
		default:
			tell("", driver.Place{}) // who waits is to ask
		}
	})
}

// confirmAll confirms what a renewal found to be granted.
func (d *Driver) confirmAll(ctx context.Context, refs []driver.Ref, places []driver.Place) {
	var wg sync.WaitGroup
	for i := range refs {
		if places[i].Err != nil || places[i].State != driver.Held || refs[i].State == driver.Held {
			continue
		}
		wg.Go(func() {
			p, err := d.confirmed(ctx, refs[i].Ticket, places[i])
			switch {
			case err == nil:
				places[i] = p
			case driver.ClassOf(err) == driver.Unavailable && errors.Is(err, ErrUnconfirmed):
				d.confirms.settled(refs[i].ID)
				places[i] = driver.Place{State: driver.Gone}
			default:
				places[i] = driver.Place{Err: err}
			}
		})
	}
	wg.Wait()
}
