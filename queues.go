package holdfast

// queues has the local queues of a client that are in use. Client.mu guards
// them.
type queues struct {
	c      *Client
	byHash map[uint64]*queue // by the hash of the key; the key itself is large. See queue.sameHash
	hash   func(queueKey) uint64
}

// uncontended allocates queue, hold and ticket together: the usual Lock needs
// all three. They take 568 bytes: with the runtime's header of 8 bytes, a
// size class.
type uncontended struct {
	queue  queue
	hold   Hold
	ticket ticket
}

// get returns the queue of key, with a reference that release returns, and an
// ungranted Hold. It begins a call as beginCall does, and returns nil, nil from
// Shutdown or Close on.
func (qs *queues) get(key queueKey) (*queue, *Hold) {
	c := qs.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shutdown.phase != phaseOpen {
		return nil, nil
	}
	c.calls.Add(1)
	at := qs.hash(key)
	for q := qs.byHash[at]; q != nil; q = q.sameHash {
		if q.key == key {
			q.refs++
			h := &Hold{queue: q}
			h.wait = c.waits.get(h)
			return q, h
		}
	}
	s := new(uncontended)
	q, h := &s.queue, &s.hold
	q.laneHealth, q.key, q.refs, q.sameHash = c.lanes.of(key.name), key, 1, qs.byHash[at]
	qs.byHash[at] = q
	h.queue, h.wait = q, c.waits.get(h)
	h.wait.spareTicket = &s.ticket
	return q, h
}

// release returns a reference, and forgets a queue without references.
func (qs *queues) release(q *queue) {
	qs.c.mu.Lock()
	defer qs.c.mu.Unlock()
	q.refs--
	if q.refs > 0 {
		return
	}
	at := qs.hash(q.key)
	if first := qs.byHash[at]; first != q {
		for first.sameHash != q {
			first = first.sameHash
		}
		first.sameHash = q.sameHash
	} else if q.sameHash != nil {
		qs.byHash[at] = q.sameHash
	} else {
		delete(qs.byHash, at)
	}
}

// all returns the queues that are in use.
func (qs *queues) all() (all []*queue) {
	qs.c.mu.Lock()
	defer qs.c.mu.Unlock()
	for _, q := range qs.byHash {
		for ; q != nil; q = q.sameHash {
			all = append(all, q)
		}
	}
	return all
}
