package sqlline

// early is what most requests read next after the line's row. Where the
// database is a round trip away it is read together with the row, by
// statements of their own that begin once it is locked.
type early struct {
	id     string    // of the ticket that the request is about; empty for none
	own    []*ticket // that ticket
	grave  int64     // until when it has a grave
	next   []*ticket // the first ones that wait
	unread bool      // next was not used yet
}

// earlyWaiters is how many of those who wait are read early.
const earlyWaiters = 2

// readEarly returns the statements.
func (l *line) readEarly() []*Stmt {
	next := l.t.firsts.with(l.key, l.key, earlyWaiters)
	next.Row = l.ifFound(l.ticketRow(&l.early.next))
	l.early.unread = true
	do := []*Stmt{next}
	if l.early.id != "" {
		own := l.t.own.with(l.key, l.early.id)
		own.Row = l.ifFound(l.ticketRow(&l.early.own))
		grave := l.t.buried.with(l.key, l.early.id)
		grave.Row = func(scan func(...any) error) error { return scan(&l.early.grave) }
		do = append(do, own, grave)
	}
	return do
}

// ownOf returns the ticket of this id from the ticket table, as a slice of at
// most one.
func (l *line) ownOf(id string) ([]*ticket, error) {
	if l.d.Clock == nil && id == l.early.id && id != "" {
		return l.same(l.early.own), nil
	}
	return l.tickets(l.t.own.with(l.key, id))
}

// graveOf returns until when the ticket of this id has a grave.
func (l *line) graveOf(id string) (int64, error) {
	if l.d.Clock == nil && id == l.early.id && id != "" {
		return l.early.grave, nil
	}
	return l.number(l.t.buried.with(l.key, id))
}

// ifFound passes rows over as long as the line's row was not found: somebody
// may have made the line since.
func (l *line) ifFound(row func(func(...any) error) error) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		if !l.found {
			return nil
		}
		return row(scan)
	}
}
