package sqlqueue

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// bulk is one transaction of two round trips on the queues of many tickets. It
// locks the rows that nobody else has locked, reads the data for all decisions,
// and writes the results for the queues in which nothing is due and no waiter
// can be granted. It leaves other queues as they are: each of them needs a
// transaction of its own.
type bulk struct {
	*Queues
	b      *batch
	queues map[string]*bulkQueue // by key; the locked ones
	exists map[string]bool       // keys of queues that have a row
	now    int64
}

// bulkQueue is a queue with the data on which a bulk decides.
type bulkQueue struct {
	queueRow
	tickets    map[string]*bulkTicket // by id; the tickets of refs
	holders    int64                  // when the first holder in the ticket table expires
	front      int64                  // when the first ticket of the first waiting place expires
	frontUnits int64
	renewed    int64 // the latest renewal of these tickets
	meta       string
	read       bool // all of the above was read
}

// bulkTicket is a ticket in the ticket table. The last three fields are for a
// waiter, as waitingText returns them: the number of waiting places before its own,
// and when the place directly before it expires and was renewed.
type bulkTicket struct {
	ticket
	before, pred, predRenewed int64
}

// edit is the set of changes to the refs of one queue.
type edit struct {
	statuses                         []driver.Status
	extend                           []any // queue and id of each ticket
	extendHead, updateDue, clearHead bool
	remove                           []*Stmt
	held, used, waiting              int64 // to subtract from the queue's counts
}

// bulk decides about those of todo that it can. The function decide returns the
// changes to the refs of one queue, or false if it cannot decide.
func (b *batch) bulk(ctx context.Context, s *Queues, db DB, todo []int, decide func(*bulk, *bulkQueue, []int) (edit, bool)) {
	for chunk := range slices.Chunk(b.inKeyOrder(todo), bulkMax) {
		var found map[int]driver.Status
		err := db.Tx(ctx, func(tx Tx) ([]*Stmt, error) {
			found = make(map[int]driver.Status)
			k := &bulk{Queues: s, b: b}
			if err := k.readAll(ctx, tx, chunk); err != nil {
				return nil, err
			}
			var write bulkWrites
			for same := range b.byQueue(chunk) {
				key := b.keys[same[0]]
				e, ok := edit{}, false
				switch q := k.queues[string(key)]; {
				case q != nil:
					if q.steady(k.now) {
						e, ok = decide(k, q, same)
					}
				case !k.exists[string(key)]:
					e, ok = k.goneEdit(same)
				}
				if ok {
					for n, i := range same {
						found[i] = e.statuses[n]
					}
					write.add(key, e)
				}
			}
			return write.stmts(&s.t.bulk, k.now), nil
		})
		for _, i := range chunk {
			if p, ok := found[i]; err != nil {
				b.setStatus(i, driver.Status{Err: err})
			} else if ok {
				b.setStatus(i, p)
			}
		}
	}
}

// readAll locks and reads the queues of the refs, and reads the refs' tickets.
func (k *bulk) readAll(ctx context.Context, tx Tx, chunk []int) error {
	k.queues, k.exists = make(map[string]*bulkQueue), make(map[string]bool)
	names := make(map[string]string)
	var keys, held, waiting []any
	var keysOfOne, ofOne, waitingInOne []any // to be read by statements about one queue
	for same := range k.b.byQueue(chunk) {
		key := k.b.keys[same[0]]
		names[string(key)] = k.b.refs[same[0]].Name
		var waits []any
		for _, i := range same {
			if k.b.refs[i].State == driver.Waiting {
				waits = append(waits, key, k.b.refs[i].ID)
			} else {
				held = append(held, key, k.b.refs[i].ID)
			}
		}
		// Where a client has several waiters, the queue may be deep.
		if k.d.ConstantBounds && (len(same) == len(chunk) || len(waits) > 2) {
			keysOfOne = append(keysOfOne, key)
			ofOne = append(ofOne, key, "")
			waitingInOne = append(waitingInOne, waits...)
		} else {
			keys = append(keys, key)
			waiting = append(waiting, waits...)
		}
	}
	t := &k.t.bulk
	lock := t.lock.with(append(keysOfOne, keys...))
	lock.Row = func(scan func(...any) error) error { return k.lockedRow(names, scan) }
	clock := k.t.clock.with()
	clock.Row = func(scan func(...any) error) error { return scan(&k.now, new(int64)) }
	do := []*Stmt{lock}
	add := func(row func(func(...any) error) error, stmts ...*Stmt) {
		for _, s := range stmts {
			s.Row = row
			do = append(do, s)
		}
	}
	if len(keys) > 0 {
		add(k.stateRow, t.state.with(keys))
	}
	add(k.stateRow, oneState().each(&t.oneState, ofOne)...)
	if len(held) > 0 {
		add(func(scan func(...any) error) error { return k.ticketRow(scan, new(bulkTicket)) }, t.held.pairs(held))
	}
	waiter := func(scan func(...any) error) error {
		t := new(bulkTicket)
		return k.ticketRow(scan, t, &t.before, &t.pred, &t.predRenewed)
	}
	if len(waiting) > 0 {
		add(waiter, t.waiting.pairs(waiting))
	}
	add(waiter, oneWaiting().each(&t.oneWaiting, waitingInOne)...)
	if k.d.Clock == nil {
		do = slices.Insert(do, 1, clock)
	}
	if err := tx.Do(ctx, do...); err != nil {
		return err
	}
	if k.d.Clock != nil {
		k.now, _ = k.d.Clock()
	}
	return nil
}

// goneEdit returns the changes to the refs of a queue that has no row: their
// tickets are gone.
func (k *bulk) goneEdit(same []int) (e edit, ok bool) {
	for _, i := range same {
		if k.b.refs[i].JoinPending {
			return e, false
		}
		e.statuses = append(e.statuses, driver.Status{State: driver.Gone})
	}
	return e, true
}

// lockedRow reads the row of a queue that is now locked. A row of a foreign
// layout is left to a transaction of its own, which reports it.
func (k *bulk) lockedRow(names map[string]string, scan func(...any) error) error {
	var key []byte
	q := &bulkQueue{tickets: make(map[string]*bulkTicket)}
	err := q.scan(func(dest ...any) error {
		err := scan(append([]any{&key}, dest...)...)
		q.key, q.name = key, names[string(key)]
		return err
	})
	if err == nil {
		k.queues[string(key)] = q
	} else if Foreign(err) {
		err = nil
	}
	return err
}

// stateRow reads a row of stateText, if its queue is locked.
func (k *bulk) stateRow(scan func(...any) error) error {
	var key []byte
	var q bulkQueue
	err := scan(&key, &q.holders, &q.front, &q.frontUnits, &q.renewed, &q.meta)
	k.exists[string(key)] = true
	if to := k.queues[string(key)]; to != nil {
		to.holders, to.front, to.frontUnits, to.renewed, to.meta = q.holders, q.front, q.frontUnits, q.renewed, q.meta
		to.read = true
	}
	return err
}

// ticketRow reads a ticket, if its queue is locked. More receives the
// columns after those of every ticket.
func (k *bulk) ticketRow(scan func(...any) error, t *bulkTicket, more ...any) error {
	var key []byte
	err := t.scan(func(dest ...any) error {
		return scan(append(append([]any{&key}, dest...), more...)...)
	})
	if q := k.queues[string(key)]; q != nil {
		q.tickets[t.id] = t
		q.read = q.read && q.fits(&t.ticket)
	}
	return err
}

// steady reports whether nothing is due in a queue, apart from its leaving and
// waiting refs, and no waiter can be granted. A deadline further away than a
// renewal would set it dates from before the clock was set back; such a queue
// is not steady.
func (q *bulkQueue) steady(now int64) bool {
	h := q.head
	switch {
	case !q.read || q.holders <= now || q.renewed > now:
		return false
	case h != nil && (h.until <= now || h.until-h.keep > now):
		return false
	}
	room := q.lim - q.used
	return q.waiting == 0 || room == 0 || q.front > now && q.frontUnits > room
}

// ticketOf returns the ticket of a ref, nil if it has none. It returns false if
// the ticket has expired, or if its deadline was set before the clock was set
// back.
func (q *bulkQueue) ticketOf(id string, now int64) (t *bulkTicket, ok bool) {
	if h := q.head; h != nil && h.id == id {
		return &bulkTicket{ticket: *h}, true
	}
	t = q.tickets[id]
	return t, t == nil || t.until > now && t.until-t.keep <= now
}

// renewEdit returns the changes to the refs of one queue that are to be
// renewed.
func renewEdit(k *bulk, q *bulkQueue, same []int) (e edit, ok bool) {
	for _, i := range same {
		ref := &k.b.refs[i]
		t, ok := q.ticketOf(ref.ID, k.now)
		if !ok {
			return e, false
		}
		p := driver.Status{State: driver.Gone}
		switch {
		case t == nil:
		case t.place <= q.turn:
			p = driver.Status{State: driver.Held, Token: uint64(t.token), Lease: ref.TTL}
		case ref.State != driver.Waiting:
			return e, false // its predecessors were not read
		default:
			if p, ok = q.waitingStatus(t, ref.TTL, k.now); !ok {
				return e, false
			}
		}
		e.statuses = append(e.statuses, p)
		switch {
		case t == nil:
		case t.inRow:
			e.extendHead = true
		default:
			e.extend = append(e.extend, q.key, t.id)
			// While the other holders are renewed as well, due never falls
			// behind the clock.
			e.updateDue = e.updateDue || t.place <= q.turn && q.due < k.now+t.keep/2
		}
	}
	return e, true
}

// waitingStatus returns the status of a waiting ticket, as [queue.status]
// computes it.
func (q *bulkQueue) waitingStatus(t *bulkTicket, ttl time.Duration, now int64) (p driver.Status, ok bool) {
	at, before := t.pred, t.before
	switch {
	case t.pred == 0: // it is the first
		at, before = q.holders, 0
		if q.head != nil {
			at = min(at, q.head.until)
		}
	case t.pred <= now || t.predRenewed > now:
		return p, false
	case before < 0:
		before = q.distance(t.place)
	}
	p = driver.Status{State: driver.Waiting, Lease: ttl, Ahead: int(q.held + before), Holder: q.meta}
	if q.head != nil {
		p.Holder = q.head.meta
	}
	p.Recheck = max(minRecheck, duration(at-now))
	return p, true
}

// leaveEdit returns the changes to the refs of one queue that leave. It returns
// false where a waiter would be granted, or where a departure leaves something
// behind, such as a tombstone or a shared place.
func leaveEdit(k *bulk, q *bulkQueue, same []int) (e edit, ok bool) {
	full := q.used == q.lim
	for _, i := range same {
		ref := &k.b.refs[i]
		t, ok := q.ticketOf(ref.ID, k.now)
		if !ok || ref.JoinPending || t != nil && t.owner != "" {
			return e, false
		}
		p := driver.Status{State: driver.Gone}
		switch {
		case t == nil:
		case t.place <= q.turn && q.waiting == 0:
			p = driver.Status{State: driver.Held, Token: uint64(t.token)}
			e.held++
			e.used += t.units
		case t.place > q.turn && full:
			p = driver.Status{State: driver.Waiting}
			e.waiting++
		default:
			return e, false
		}
		e.statuses = append(e.statuses, p)
		switch {
		case t == nil:
		case t.inRow:
			e.clearHead = true
			q.head = nil
		default:
			e.remove = append(e.remove, k.t.remove.with(q.key, t.place, t.seq))
			delete(q.tickets, t.id)
		}
	}
	return e, true
}

// bulkWrites are the changes to many queues.
type bulkWrites struct {
	extend                           []any
	extendHead, updateDue, clearHead []any // keys
	remove                           []*Stmt
	subtract                         map[[3]int64][]any // keys, by the counts to subtract
}

func (w *bulkWrites) add(key []byte, e edit) {
	w.extend = append(w.extend, e.extend...)
	w.remove = append(w.remove, e.remove...)
	for keys, is := range map[*[]any]bool{&w.extendHead: e.extendHead, &w.updateDue: e.updateDue, &w.clearHead: e.clearHead} {
		if is {
			*keys = append(*keys, key)
		}
	}
	if less := [3]int64{e.held, e.used, e.waiting}; less != ([3]int64{}) {
		if w.subtract == nil {
			w.subtract = make(map[[3]int64][]any)
		}
		w.subtract[less] = append(w.subtract[less], key)
	}
}

// stmts returns the statements. Statements on tickets come before those that
// read the changed tickets.
func (w *bulkWrites) stmts(t *bulkTexts, now int64) (out []*Stmt) {
	if len(w.extend) > 0 {
		out = append(out, t.extend.pairs(w.extend, now))
	}
	out = append(out, w.remove...)
	if len(w.extendHead) > 0 {
		out = append(out, t.extendHead.with(w.extendHead, now))
	}
	if len(w.updateDue) > 0 {
		out = append(out, t.updateDue.with(w.updateDue))
	}
	if len(w.clearHead) > 0 {
		out = append(out, t.clearHead.with(w.clearHead))
	}
	for less, keys := range w.subtract {
		out = append(out, t.subtract.with(keys, less[0], less[1], less[2]))
	}
	return out
}
