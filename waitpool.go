package holdfast

import "sync"

// waitPool keeps finished waits for other Locks, with their channels.
type waitPool struct{ pool sync.Pool }

// get returns a wait of h, with a recycled channel if there is one.
func (p *waitPool) get(h *Hold) *wait {
	w, ok := p.pool.Get().(*wait)
	if !ok {
		w = new(wait)
	}
	w.hold = h
	return w
}

// put returns h's wait to the pool. h has been granted, so no goroutine
// wakes it any more. A failed wait is not recycled, because its queue may still
// read its error.
func (p *waitPool) put(h *Hold) {
	w := h.wait
	h.wait = nil
	if w.wakeUp != nil {
		select {
		case <-w.wakeUp:
		default:
		}
	}
	*w = wait{wakeUp: w.wakeUp}
	p.pool.Put(w)
}
