package holdfast

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Line is what Inspect saw of a name.
type Line struct {
	Name    string
	Limit   int64        // 0 when nobody uses the name
	Token   uint64       // the last token granted, 0 where not known
	Tickets []LineTicket // holders first, then waiters in order
}

// Kind names the kind of lock in words: "mutex", "read/write lock",
// "semaphore of 5", or "free".
func (l Line) Kind() string { return kindOf(l.Limit) }

// Holders returns the tickets that hold.
func (l Line) Holders() []LineTicket {
	n := 0
	for n < len(l.Tickets) && l.Tickets[n].State == driver.Held {
		n++
	}
	return l.Tickets[:n]
}

// Waiters returns the tickets that wait, in order.
func (l Line) Waiters() []LineTicket { return l.Tickets[len(l.Holders()):] }

// LineTicket is one ticket of a Line.
type LineTicket struct {
	ID     string // what Break takes
	Holder Holder // who, as far as the store tells
	State  driver.State
	Units  int64
	Token  uint64        // of a holder
	Left   time.Duration // until the store drops it unless renewed; negative when overdue
}

func newLine(name string, dl driver.Line) Line {
	l := Line{Name: name, Limit: dl.Limit, Token: dl.Token << 8}
	for _, e := range dl.Tickets {
		h := parseHolder(e.Meta)
		if e.Owner != "" {
			h.Owner = e.Owner
		}
		l.Tickets = append(l.Tickets, LineTicket{
			ID: e.ID, Holder: h, State: e.State, Units: e.Units, Token: e.Token << 8, Left: e.Left})
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

func kindOfKey(k lineKey) string {
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
