package sqlqueue

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
)

// Requests are the requests of [driver.Driver] on [Tables]. A driver embeds
// them: each method meets the duties of the method of that name.
type Requests struct{ tables *Tables }

// Join implements [driver.Driver.Join].
func (r Requests) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := r.tables.Begin(ctx); err != nil {
		return driver.Status{}, err
	}
	address := r.tables.address()
	p, pushes, err := r.tables.Queues.Join(ctx, r.tables.Database, t, address, wait)
	r.tables.deliver(pushes, err, t.Name)
	if err != nil {
		return driver.Status{}, err
	}
	if p.State == driver.Waiting {
		r.tables.waiters.Store(t.ID, waiter{name: t.Name, noPush: address != r.tables.Name})
	}
	r.tables.sweeper.CountJoins(1)
	return r.tables.limitRecheck(t, p), nil
}

// Renew implements [driver.Driver.Renew].
func (r Requests) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return r.batch(ctx, refs, r.tables.Queues.Renew)
}

// Leave implements [driver.Driver.Leave].
func (r Requests) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	statuses, err := r.batch(ctx, refs, r.tables.Queues.Leave)
	for _, ref := range refs {
		r.tables.waiters.Delete(ref.ID)
	}
	return statuses, err
}

func (r Requests) batch(ctx context.Context, refs []driver.Ref, do func(context.Context, DB, []driver.Ref) ([]driver.Status, []Push)) ([]driver.Status, error) {
	if err := r.tables.Begin(ctx); err != nil {
		return nil, err
	}
	statuses, pushes := do(ctx, r.tables.Database, refs)
	var err error
	var unknown []string
	for i, p := range statuses {
		if p.Err != nil && driver.ClassOf(p.Err) == driver.Unknown {
			err = p.Err
			unknown = append(unknown, refs[i].Name)
		}
		statuses[i] = r.tables.limitRecheck(refs[i].Ticket, p)
	}
	r.tables.deliver(pushes, err, unknown...)
	return statuses, nil
}

// Inspect implements [driver.Driver.Inspect].
func (r Requests) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := r.tables.Begin(ctx); err != nil {
		return driver.Queue{}, err
	}
	queue, pushes, err := r.tables.Queues.Inspect(ctx, r.tables.Database, name)
	r.tables.deliver(pushes, err, name)
	if err != nil {
		return driver.Queue{}, err
	}
	return queue, nil
}

// Names implements [driver.Driver.Names].
func (r Requests) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return EachName(func(after []byte) ([]Named, []byte, error) {
		if err := r.tables.Begin(ctx); err != nil {
			return nil, nil, err
		}
		r.tables.sweeper.CountJoins(0)
		return r.tables.Queues.Names(ctx, r.tables.Database, after, prefix)
	}, func(name string) (bool, error) { return r.tables.hasTickets(ctx, name) })
}

// Break implements [driver.Driver.Break].
func (r Requests) Break(ctx context.Context, name, ticketID string) error {
	if err := r.tables.Begin(ctx); err != nil {
		return err
	}
	pushes, err := r.tables.Queues.Break(ctx, r.tables.Database, name, ticketID)
	r.tables.deliver(pushes, err, name)
	return err
}
