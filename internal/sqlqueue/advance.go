package sqlqueue

import "github.com/holdfast-go/holdfast/driver"

// advance drops expired holders and then walks the waiters in order. It drops
// expired waiters, grants the others as long as there is room, and stops at the
// first living waiter that does not fit. The ticket asker, which may be nil, is
// not notified: its request answers it.
func (q *queue) advance(asker *ticket) error {
	if h := q.head; h != nil && h.until <= q.now && q.steps < driver.MaxSteps {
		if err := q.drop(h, true); err != nil {
			return err
		}
	}
	if q.due <= q.now {
		if err := q.dropHolders(); err != nil {
			return err
		}
	}
	for q.waiting > 0 && !q.spent() {
		place, err := q.firstPlace()
		if err != nil {
			return err
		}
		living := q.dropExpired(place)
		if len(living) == 0 {
			continue
		}
		if q.spent() || living[0].units > q.lim-q.used {
			return nil
		}
		q.steps++
		q.grantPlace(living, asker)
	}
	return nil
}

// dropHolders drops expired holders that have a row in the ticket table.
func (q *queue) dropHolders() error {
	left := driver.MaxSteps - q.steps
	expired, err := q.rows.tickets(q.t.expired.with(q.key, q.turn, q.now, left+1))
	if err != nil {
		return err
	}
	for i, t := range expired {
		if i >= left {
			q.due = q.now
			return nil
		}
		if err := q.drop(t, true); err != nil {
			return err
		}
	}
	q.due, err = q.rows.number(q.t.due.with(q.key, q.turn))
	q.rows.dirty = true
	return err
}

// firstPlace returns the tickets of the first waiting place. There must be one.
func (q *queue) firstPlace() ([]*ticket, error) {
	for {
		for len(q.waiters) > 0 && (q.waiters[0].gone || q.waiters[0].token > 0) {
			q.waiters = q.waiters[1:]
		}
		if n := len(q.waiters); n > 0 {
			// Only tickets with a named owner share a place.
			place := q.waiters[0].place
			end := 1
			for end < n && q.waiters[end].place == place {
				end++
			}
			if end < n || !q.moreWaiters || q.waiters[0].owner == "" {
				return q.waiters[:end], nil
			}
		} else if !q.moreWaiters {
			return nil, foreign("the row of line %q counts tickets that are not there", q.name)
		}
		if err := q.readWaiters(); err != nil {
			return nil, err
		}
	}
}

// readWaiters reads further waiters from the store.
func (q *queue) readWaiters() error {
	if q.rows.prefetch.unread {
		q.rows.prefetch.unread = false
		if q.readTo.seq == never {
			q.addWaiters(q.rows.merge(q.rows.prefetch.waiters), prefetchWaiters)
			return nil
		}
	}
	n := 16
	switch {
	case q.drops > 1: // the next waiters may have expired as well
		n = min(4*q.drops+8, bulkMax)
	case q.lim == 1 && q.readTo.seq == never:
		n = 2 // usually a single waiter is granted
	}
	more, err := q.rows.tickets(q.t.waiters.with(q.key, q.readTo.place, q.readTo.place, q.readTo.seq, n))
	if err != nil {
		return err
	}
	q.addWaiters(more, n)
	return nil
}

// addWaiters appends waiters that were read with a limit of n to q.waiters.
func (q *queue) addWaiters(more []*ticket, n int) {
	q.moreWaiters = len(more) == n
	if len(more) > 0 {
		last := more[len(more)-1]
		q.readTo = position{last.place, last.seq}
	}
	q.waiters = append(q.waiters, more...)
}

// dropExpired drops the expired tickets of a place, of which it is given all, as
// many as this request may still drop. It returns the others.
func (q *queue) dropExpired(place []*ticket) []*ticket {
	var living []*ticket
	var dropped *ticket
	for _, t := range place {
		switch {
		case t.gone:
		case t.until > q.now,
			t.place > q.turn && q.drops >= driver.MaxDrops,
			t.place <= q.turn && q.steps >= driver.MaxSteps:
			living = append(living, t)
		default:
			q.dropTicket(t, true)
			dropped = t
		}
	}
	if dropped != nil && len(living) == 0 {
		q.dropPlace(dropped)
	}
	return living
}

// grantPlace grants the first waiting place, which has these tickets.
func (q *queue) grantPlace(place []*ticket, asker *ticket) {
	first := place[0]
	var minToken int64
	for _, t := range place {
		minToken = max(minToken, t.minToken)
	}
	q.token = q.nextToken(minToken)
	q.turn = first.place
	q.waiting--
	q.held++
	q.used += first.units
	q.rows.dirty = true
	if q.held == 1 && q.head == nil {
		q.rows.write(q.t.remove.with(q.key, first.place, first.seq))
		first.inRow = true
		q.head = first
	}
	for _, t := range place {
		t.token = q.token
		if !t.inRow {
			q.due = min(q.due, t.until)
		}
		if t != asker {
			q.push(t, driver.Status{State: driver.Held, Token: uint64(t.token)})
		}
	}
	if len(place) > 1 || !first.inRow {
		q.rows.write(q.t.grant.with(q.token, q.key, first.place))
	}
}

// spent reports whether another request has to go on.
func (q *queue) spent() bool {
	return q.steps >= driver.MaxSteps || q.drops >= driver.MaxDrops
}

// drop removes a ticket, and also its place if the ticket was the last of its
// place. With expired set, the removal is counted, and leaves a tombstone. The
// caller must then advance the queue.
func (q *queue) drop(t *ticket, expired bool) error {
	q.dropTicket(t, expired)
	if t.owner != "" {
		siblings, err := q.rows.number(q.t.countPlace.with(q.key, t.place))
		if err != nil {
			return err
		}
		if siblings > 0 || q.head != nil && q.head.place == t.place {
			return nil
		}
	}
	q.dropPlace(t)
	return nil
}

// dropTicket removes a ticket for drop, and not its place.
func (q *queue) dropTicket(t *ticket, expired bool) {
	switch {
	case expired && t.place > q.turn:
		q.drops++
	case expired:
		q.steps++
	}
	t.gone = true
	q.rows.dirty = true
	switch {
	case expired && !t.inRow:
		q.rows.expired = append(q.rows.expired, t)
		q.rows.noteTombstone(t.id)
	case expired:
		q.head = nil
		q.rows.addTombstone(t.id)
	case t.inRow:
		q.head = nil
	default:
		q.rows.write(q.t.remove.with(q.key, t.place, t.seq))
	}
}

func (q *queue) push(t *ticket, p driver.Status) {
	if t.wake != "" {
		q.pushes = append(q.pushes, Push{Wake: t.wake, ID: t.id, Status: p})
	}
}

// find advances the queue and returns the ticket with this id, or nil if it is
// missing or has expired.
func (q *queue) find(id string) (*ticket, error) {
	if !q.rows.found {
		return nil, nil
	}
	t := q.rows.known.get(id)
	if t == nil {
		own, err := q.rows.prefetchedTicket(id)
		if err != nil {
			return nil, err
		}
		if len(own) > 0 {
			t = own[0]
		}
	}
	if err := q.advance(t); err != nil {
		return nil, err
	}
	if t == nil || t.gone {
		return nil, nil
	}
	if t.until > q.now {
		return t, nil
	}
	q.rows.addTombstone(t.id)
	if err := q.drop(t, false); err != nil {
		return nil, err
	}
	return nil, q.advance(nil)
}
