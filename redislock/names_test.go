package redislock

import (
	"math/rand/v2"
	"strings"

	"fmt"
	"slices"

	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

func namesOf(t *testing.T, m *member, prefix string) []string {
	t.Helper()
	var names []string
	for name, err := range m.Names(m.ctx(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// clientOf returns a client of the user's own.
func clientOf(t *testing.T, s *servers.RedisServer) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10, RingScaleEachConn: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestNamesOfAllKinds checks that every name, under every prefix, excludes
// only itself, and that Names returns it, whatever other keys the server has.
func TestNamesOfAllKinds(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	for _, prefix := range []string{"", "holdfast:", "holdfast_", "{app}:", "a*[b]?{"} {
		t.Run(prefix, func(t *testing.T) {
			s.Do(t, "FLUSHALL")
			d, err := New(clientOf(t, s), &Options{Prefix: prefix, NoPrefix: prefix == ""})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			m := listen(t, d)
			for i := range 50 {
				s.Do(t, "SET", fmt.Sprint(prefix, "string", i), "x")
				s.Do(t, "HSET", fmt.Sprint(prefix, "hash", i), "a", "b", "c", "d")
				s.Do(t, "RPUSH", fmt.Sprint("holdfast_queue:{", prefix, "list", i, "}"), "x")
			}
			var want []string
			var tickets []*driver.Ticket
			for i, name := range bracedNames {
				k := m.ticket(name)
				if i%3 == 1 {
					k.Limit = 4
				}
				m.take(k, driver.Held)
				tickets = append(tickets, k)
				want = append(want, name)
			}
			slices.Sort(want)
			same(t, "names", namesOf(t, m, ""), want...)
			for _, p := range []string{"a", "{", "holdfast_", "*", "[", `\`, "ä", "日", "no such"} {
				var some []string
				for _, n := range want {
					if len(n) >= len(p) && n[:len(p)] == p {
						some = append(some, n)
					}
				}
				same(t, "names with "+p, namesOf(t, m, p), some...)
			}
			for i, k := range tickets {
				if p, err := m.Join(m.ctx(), k, false); err != nil || p.State != driver.Held {
					t.Errorf("%q: %v, %v", k.Name, p.State, err)
				}
				w := m.ticket(k.Name)
				w.Limit, w.Units = k.Limit, k.Limit
				m.take(w, driver.Waiting)
				m.leaves(k, driver.Held)
				m.granted(w)
				tickets[i] = w
			}
			same(t, "names", namesOf(t, m, ""), want...)
			for _, k := range tickets {
				m.leaves(k, driver.Held)
			}
			same(t, "names after all have left", namesOf(t, m, ""))
		})
	}
}

// TestNamesHasQueuesWithoutHolder checks that Names has a queue whose holder
// died as long as it has a waiter.
func TestNamesHasQueuesWithoutHolder(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	var k *driver.Ticket
	for waits := false; !waits; { // until the machine does both before the first expires
		m.take(m.short("n", 300*time.Millisecond), driver.Held)
		k = m.ticket("n")
		p, err := m.Join(m.ctx(), k, true)
		if err != nil {
			t.Fatal(err)
		}
		if waits = p.State == driver.Waiting; !waits {
			m.leaves(k, driver.Held)
		}
	}
	eventually(t, "the holder is gone", func() bool { return s.Do(t, "EXISTS", keysOf("n")[wire.KeyHolders]) == int64(0) })
	same(t, "names", namesOf(t, m, ""), "n")
	m.keeps(k, driver.Held)
	same(t, "names", namesOf(t, m, ""), "n")
}

// TestAbandonedQueuesDisappear checks that abandoned queues disappear.
func TestAbandonedQueuesDisappear(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	for i, limit := range []int64{1, 1, 5, 1} {
		for j := range 3 - i/3 {
			k := m.short(fmt.Sprint("n", i), 300*time.Millisecond)
			k.Limit, k.Units = limit, limit
			if i == 1 {
				k.Owner = fmt.Sprint("owner", j)
			}
			_, err := m.Join(m.ctx(), k, true)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "only the mark is left", func() bool {
		return slices.Equal(texts(s.Do(t, "KEYS", "*")), []string{wire.MarkName})
	})
}

// bracedNames meet every rule about braces and reserved words.
var bracedNames = []string{
	"a", "{a}", "{{a}}", "{a", "a}", "a}b", "}a{", "{}", "{}a", "a{}b", "a{b}c", "a{b}c{d}", "a{}b{c}", "{x", "x}",
	"}", "{", "::", ":", "#{1}", "#{1}a", "{1}a", ":a", ":{a}", "holdfast_", "holdfast_queue:{a}", "holdfast_queue::{a}",
	"holdfast_line:a", "holdfast_line:holdfast_queue:{a}", "holdfast_token:{a}", "holdfast:", "holdfast", "*", "?", "[a]",
	`\`, `a\*`, "a b", "a\nb", "a\x00b", "ä", "日本", "..", "a/b", "%41", strings.Repeat("x", 4096),
}

// TestSlots compares the slots with those that the server computes.
func TestSlots(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
	keys := append([]string(nil), bracedNames...)
	for range 50 {
		keys = append(keys, fmt.Sprintf("%d{%d}%d", rand.IntN(99), rand.IntN(99), rand.IntN(99)))
	}
	for _, k := range keys {
		if got := s.Do(t, "CLUSTER", "KEYSLOT", k); got != int64(wire.Slot(k)) {
			t.Errorf("slot of %q is %d, the server says %v", k, wire.Slot(k), got)
		}
	}
}
