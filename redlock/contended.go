package redlock

import (
	"sync"
	"time"
)

// contendedNames remembers which names were contended recently. For these it is
// better to ask the home first than all nodes at once, whose votes would have
// to be given back.
//
// No mutex is taken under mu.
type contendedNames struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

const (
	contendedFor = 250 * time.Millisecond
	maxContended = 1024
)

func (h *contendedNames) set(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.seen) >= maxContended || h.seen == nil {
		h.seen = make(map[string]time.Time)
	}
	h.seen[name] = time.Now().Add(contendedFor)
}

func (h *contendedNames) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.seen[name]
	if ok && time.Now().After(until) {
		delete(h.seen, name)
		ok = false
	}
	return ok
}
