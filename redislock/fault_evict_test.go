package redislock

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestF33_EvictedHolderIsNotShown evicts some of a queue's keys, and leaves
// others. It checks that a ticket that no longer holds is not shown as a
// holder, and that the next one is granted.
//
// Found by internal/safety/servers,
// TestExposed/redis_that_evicts_what_was_not_used with seed 603.
func TestF33_EvictedHolderIsNotShown(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
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
		s.Do(t, "DEL", keys[wire.KeyHolders], keys[wire.KeyDue])
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

// TestF33_AnyEvictedKeysAreSafe evicts each set of a queue's keys. It checks
// that no client gets an error, that no client is granted a lock that another
// still holds by the store's account, and that holds of dead clients become
// free in time.
func TestF33_AnyEvictedKeysAreSafe(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	const all = 5
	for evicted := 1; evicted < 1<<wire.OwnKeys; evicted++ {
		for _, owner := range []string{"", "owner"} {
			name := fmt.Sprint(owner, evicted)
			ask := func(k *driver.Ticket, units int64) *driver.Ticket {
				k.Limit, k.Units = all, units
				return k
			}
			dead, live, waits := ask(m.short(name, 100*time.Millisecond), 3), ask(m.ticket(name), 1), ask(m.ticket(name), all)
			dead.Owner = owner
			m.take(dead, driver.Held)
			m.take(live, driver.Held)
			m.take(waits, driver.Waiting)
			var keys []string
			for i, key := range wire.NewQueueKeys(DefaultPrefix, name).Keys[:wire.OwnKeys] {
				if evicted&(1<<i) != 0 {
					keys = append(keys, key)
				}
			}
			s.Do(t, append([]string{"DEL"}, keys...)...)
			held := m.renew(live).State
			if waiting := m.renew(waits).State; waiting == driver.Held && held == driver.Held {
				t.Errorf("%q evicted: %d units and %d", keys, live.Units, waits.Units)
			}
			if held == driver.Held {
				eventually(t, "what the dead held is free", func() bool {
					m.keeps(live, driver.Held)
					m.renew(waits)
					l, err := m.Inspect(m.ctx(), name)
					return err == nil && !slices.ContainsFunc(l.Tickets, func(e driver.Entry) bool { return e.ID == dead.ID })
				})
			}
			for _, k := range []*driver.Ticket{live, waits} {
				if _, err := m.Leave(m.ctx(), []driver.Ref{ref(k)}); err != nil {
					t.Error(err)
				}
			}
			next := ask(m.ticket(name), all)
			eventually(t, fmt.Sprintf("the line serves again, of which %q were evicted", keys), func() bool {
				p, err := m.Join(m.ctx(), next, false)
				return err == nil && p.State == driver.Held
			})
			m.leaves(next, driver.Held)
		}
	}
}
