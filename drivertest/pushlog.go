package drivertest

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// pushLog has the pushes that one client has got.
type pushLog struct {
	mu     sync.Mutex
	pushes []push
	wake   map[string]chan driver.Status
	gaps   int
}

type push struct {
	id     string
	status driver.Status
}

// notify records a push.
func (l *pushLog) notify(id string, p driver.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		l.gaps++
		for _, ch := range l.wake {
			select {
			case ch <- driver.Status{}:
			default:
			}
		}
		return
	}
	l.pushes = append(l.pushes, push{id, p})
	if ch := l.wake[id]; ch != nil {
		select {
		case ch <- p:
		default:
		}
	}
}

// pushesOf returns the pushes of a ticket so far.
func (l *pushLog) pushesOf(t *driver.Ticket) []driver.Status {
	var ps []driver.Status
	for _, p := range l.allPushes() {
		if p.id == t.ID {
			ps = append(ps, p.status)
		}
	}
	return ps
}

// waitForPush waits for a push about t, for at most d. On its first call for t
// it also returns pushes that came earlier, even before the answer to the Join.
func (l *pushLog) waitForPush(t *driver.Ticket, d time.Duration) driver.Status {
	l.mu.Lock()
	ch := l.wake[t.ID]
	if ch == nil {
		ch = make(chan driver.Status, 4)
		if l.wake == nil {
			l.wake = make(map[string]chan driver.Status)
		}
		l.wake[t.ID] = ch
		for _, p := range l.pushes {
			if p.id == t.ID && len(ch) < cap(ch) {
				ch <- p.status
			}
		}
	}
	l.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case p := <-ch:
		return p
	case <-timer.C:
		return driver.Status{}
	}
}

// gapCount returns the number of gaps so far.
func (l *pushLog) gapCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gaps
}

// allPushes returns the pushes so far.
func (l *pushLog) allPushes() []push {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pushes)
}

// drop forgets that a goroutine waits for pushes of a ticket.
func (l *pushLog) drop(t *driver.Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wake, t.ID)
}
