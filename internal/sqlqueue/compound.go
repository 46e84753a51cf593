package sqlqueue

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// CompoundDB is a [DB] that may run compound statements: several statements in one,
// which begins a transaction and ends it. A contended request is then one statement in
// one round trip.
type CompoundDB interface {
	// RunsCompounds reports whether this database is known to run them.
	RunsCompounds() bool
	// Compound runs one. It returns nil without a row of an answer if the statement
	// could not be run here, or if the server has undone it for a reason that another
	// way may avoid.
	Compound(ctx context.Context, s *Stmt) error
}

// compounds are the contended requests of one database as compound statements.
type compounds struct {
	*Queues
	db CompoundDB
}

// compounds returns nil if this database does not run them.
func (s *Queues) compounds(db DB) *compounds {
	if c, ok := db.(CompoundDB); ok && s.t.joinCompound != nil && c.RunsCompounds() {
		return &compounds{s, c}
	}
	return nil
}

// decides reports whether the statement can decide about tickets such as t. It could
// about readers and writers, but hardly ever does where there are both: nearly every
// request would need another one.
func (c *compounds) decides(t *driver.Ticket) bool {
	return c != nil && t.Owner == "" && t.Limit != driver.RWLimit
}

// join joins a queue that probably has a holder, in one round trip. If the statement
// does not decide, join returns a status without a state, and nothing has changed.
func (c *compounds) join(ctx context.Context, t *driver.Ticket, key []byte, wake string, wait bool) (p driver.Status, err error) {
	waits := int64(0)
	if wait {
		waits = 1
	}
	join := c.t.joinCompound.with(key, []byte(t.Name), t.Limit, t.Units, t.ID, micros(driver.Keep(t.TTL)), wake, t.Meta, int64(t.MinToken), waits)
	join.Row = func(scan func(...any) error) error {
		var token, ahead, left int64
		var holder string
		err := scan(&token, &ahead, &left, &holder)
		switch {
		case token > 0:
			p = driver.Status{State: driver.Held, Token: uint64(token), Lease: t.TTL}
		case wait:
			p = driver.Status{State: driver.Waiting, Lease: t.TTL, Ahead: int(ahead)}
		default:
			p = driver.Status{State: driver.Gone}
		}
		if p.State != driver.Held {
			p.Holder, p.Recheck = holder, max(minRecheck, duration(left))
		}
		return err
	}
	if err := c.db.Compound(ctx, join); err != nil {
		return driver.Status{}, err
	}
	if p.State != 0 {
		c.contention.record(key, p.State != driver.Held)
	}
	return p, nil
}

// leave lets a mutex's holder leave, in one round trip.
func (c *compounds) leave(ctx context.Context, key []byte, id string) (d departure, err error) {
	leave := c.t.leaveCompound.with(key, id, c.d.Self)
	leave.Row = func(scan func(...any) error) error {
		p := Push{Status: driver.Status{State: driver.Held}}
		var token int64
		err := scan(&d.left, &p.ID, &p.Wake, &token, &d.waiting)
		if p.Status.Token = uint64(token); token > 0 {
			d.granted = &p
		}
		return err
	}
	err = c.db.Compound(ctx, leave)
	return d, err
}
