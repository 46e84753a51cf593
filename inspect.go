package holdfast

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// LockInfo is a snapshot of the queue of a name, as Inspect returns it.
type LockInfo struct {
	Name    string
	Size    int64        // of a semaphore, or the store's number for another kind; 0 if the name is not in use
	Token   uint64       // the last token granted, 0 where not known
	Holders []TicketInfo // tickets that hold, in the order of their grants as far as the store has one
	Waiters []TicketInfo // tickets that wait, in the order in which they will hold
}

// Kind returns the kind of lock in words: "mutex", "read/write lock",
// "semaphore of 5", or "free".
func (l LockInfo) Kind() string { return kindOf(l.Size) }

// TicketInfo is one holder or one waiter of a LockInfo.
type TicketInfo struct {
	ID     string        // the argument of Break
	Holder Holder        // the client, as far as the store knows it
	Units  int64         // its part of the Size
	Token  uint64        // of a holder
	Left   time.Duration // until the store drops it unless renewed; negative when overdue
}

func newLockInfo(name string, dq driver.Queue) LockInfo {
	l := LockInfo{Name: name, Size: dq.Limit, Token: dq.Token << 8}
	for _, e := range dq.Tickets {
		h := parseHolder(e.Meta)
		if e.Owner != "" {
			h.Owner = e.Owner
		}
		t := TicketInfo{ID: e.ID, Holder: h, Units: e.Units, Token: e.Token << 8, Left: e.Left}
		if e.State == driver.Held {
			l.Holders = append(l.Holders, t)
		} else {
			l.Waiters = append(l.Waiters, t)
		}
	}
	return l
}

func kindOf(limit int64) string {
	switch limit {
	case 0:
		return "free"
	case 1:
		return "mutex"
	case driver.RWLimit:
		return "read/write lock"
	}
	return fmt.Sprintf("semaphore of %d", limit)
}

func kindOfKey(k queueKey) string {
	switch {
	case k.limit == driver.RWLimit && k.units == 1:
		return "a read lock"
	case k.limit == driver.RWLimit:
		return "a write lock"
	case k.limit == 1:
		return "a mutex"
	}
	return fmt.Sprintf("%d of %d permits", k.units, k.limit)
}
