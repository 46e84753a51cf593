package holdfast

// holdList is a list of holds that is linked through the holds, so it needs no
// memory of its own. It contains a queue's waiters, or the holds of one ticket.
// No hold is in two lists.
type holdList struct{ first, last *Hold }

func (q *holdList) pushBack(h *Hold) {
	h.prev, h.next = q.last, nil
	if q.last == nil {
		q.first = h
	} else {
		q.last.next = h
	}
	q.last = h
}

func (q *holdList) pushFront(h *Hold) {
	h.prev, h.next = nil, q.first
	if q.first == nil {
		q.last = h
	} else {
		q.first.prev = h
	}
	q.first = h
}

// remove takes h out of the list, which contains it.
func (q *holdList) remove(h *Hold) {
	if h.prev == nil {
		q.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		q.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
}

// empty removes all holds and returns them in order.
func (q *holdList) empty() (all []*Hold) {
	for q.first != nil {
		all = append(all, q.first)
		q.remove(q.first)
	}
	return all
}
