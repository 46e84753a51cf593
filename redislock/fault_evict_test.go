package redislock

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestF33_PartOfALine: of a line's keys some are evicted, and others are not. Who
// holds no more is not shown as if it did, and the next one is granted.
//
// Found by check/internal/servers, TestExposed/redis_that_evicts_what_was_not_used
// with seed 603.
func TestF33_PartOfALine(t *testing.T) {
	t.Parallel()
	s := backends.Redis(t, backends.RedisOptions{})
	m := enter(t, s, "")
	for _, owner := range []string{"", "owner"} {
		name := "n" + owner
		k := m.ticket(name)
		k.Limit, k.Units, k.Owner = 5, 3, owner
		m.take(k, driver.Held)
		if l, err := m.Inspect(m.ctx(), name); err != nil || len(l.Tickets) != 1 {
			t.Errorf("held: %+v, %v", l, err)
		}
		keys := keysOf(name)
		s.Do(t, "DEL", keys[keyLine], keys[keyDue])
		if l, err := m.Inspect(m.ctx(), name); err != nil || len(l.Tickets) != 0 {
			t.Errorf("evicted: %+v, %v", l, err)
		}
		w := m.ticket(name)
		w.Limit, w.Units = 5, 5
		m.take(w, driver.Held)
		if l, err := m.Inspect(m.ctx(), name); err != nil || len(l.Tickets) != 1 || l.Tickets[0].ID != w.ID {
			t.Errorf("held again: %+v, %v", l, err)
		}
		m.leaves(w, driver.Held)
	}
}
