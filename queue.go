package holdfast

// holdList is a list of holds, linked through themselves so that it costs no
// memory of its own: those to be that wait in a line, or those that hold by one
// ticket. No hold is in two.
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

// remove takes h, which is in the queue, out of it.
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

// empty takes all out, and returns them in their order.
func (q *holdList) empty() (all []*Hold) {
	for q.first != nil {
		all = append(all, q.first)
		q.remove(q.first)
	}
	return all
}
