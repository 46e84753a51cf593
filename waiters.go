package holdfast

import "time"

// waiters has the goroutines that wait in a queue, first come first served. One
// of them at a time is the joiner: only the joiner sends Join and replaces the
// pending ticket. The role passes on with the head of the queue. queue.mu guards
// all of it.
type waiters struct {
	holdList
	joiner  *Hold  // nil when the pending ticket needs no Join
	tries   int32  // number of Try calls
	news    uint16 // counts the answers about the place of the pending ticket, for WithWaiting; wraps
	joining bool   // the joiner is in join, and appoints its successor itself
}

func (ws *waiters) pushBack(h *Hold) {
	ws.holdList.pushBack(h)
	if h.wait.try {
		ws.tries++
	}
}

func (ws *waiters) pushFront(h *Hold) {
	ws.holdList.pushFront(h)
	if h.wait.try {
		ws.tries++
	}
}

// remove takes h, which waits, off the waiters.
func (ws *waiters) remove(h *Hold) {
	ws.holdList.remove(h)
	if h.wait.try {
		ws.tries--
	}
}

// appointJoiner makes h the joiner.
func (ws *waiters) appointJoiner(h *Hold) {
	ws.joiner = h
	h.wait.wake()
}

// hasJoiner reports whether a goroutine that still waits is the joiner, or one
// whose Join is in flight.
func (ws *waiters) hasJoiner() bool {
	return ws.joining || ws.joiner != nil && ws.joiner.queuedLocked()
}

// endWait ends the wait of h with err, unless h has been granted.
func (ws *waiters) endWait(h *Hold, err error) {
	if !h.queuedLocked() {
		return
	}
	ws.remove(h)
	h.wait.err = err
	h.wait.wake()
}

// endTries ends all Try calls for the lock of that name, because another ticket
// holds. left is the time after which the store drops the holder, 0 if not known.
func (ws *waiters) endTries(name, holder string, left time.Duration) {
	for h := ws.first; h != nil && ws.tries > 0; {
		next := h.next
		if h.wait.try {
			ws.endWait(h, &HeldError{Name: name, Holder: parseHolder(holder), Left: left})
		}
		h = next
	}
}
