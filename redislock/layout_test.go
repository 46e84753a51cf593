package redislock

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// hash returns a hash as "field=value", sorted.
func hash(t *testing.T, s *backends.RedisServer, key string) []string {
	t.Helper()
	list := s.Do(t, "HGETALL", key).([]any)
	var fs []string
	for i := 0; i < len(list); i += 2 {
		fs = append(fs, fmt.Sprintf("%s=%s", list[i], list[i+1]))
	}
	sort.Strings(fs)
	return fs
}

// tickets is hash without the times at which tickets are due.
func tickets(t *testing.T, s *backends.RedisServer, key string) []string {
	t.Helper()
	return slices.DeleteFunc(hash(t, s, key), func(f string) bool { return f[0] == 2 })
}

func texts(v any) []string {
	var s []string
	for _, x := range v.([]any) {
		s = append(s, x.(string))
	}
	return s
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%s:\n got %.1000q\nwant %.1000q", what, shortened(got), shortened(want))
	}
}

func shortened(list []string) []string {
	var s []string
	for _, x := range list {
		s = append(s, x[:min(len(x), 100)])
	}
	return s
}

// What is stored is the layout, byte for byte: other versions live by it.
//
// Covers: F66 on redis, sentinel, cluster.
func TestF66_LayoutGolden(t *testing.T) {
	s := backends.SharedRedis(t)
	m := enter(t, s, "")
	name := "layout/" + m.uuid
	k := keysOf(name)

	// An uncontended mutex: two keys, with a lock of Redisson in the first.
	one := m.ticket(name)
	p := m.take(one, driver.Held)
	same(t, "plain hold", hash(t, s, k[keyLine]),
		fmt.Sprintf("\x01%s=%d\n%s\nmeta", one.ID, p.Token, m.channel), one.ID+"=1")
	if ttl := s.Do(t, "PTTL", k[keyLine]).(int64); ttl > 31_200 || ttl < 20_000 {
		t.Errorf("PTTL is %d", ttl)
	}
	if got := s.Do(t, "GET", k[keyToken]); got != strconv.FormatUint(p.Token, 10) {
		t.Errorf("counter is %v, the token %d", got, p.Token)
	}
	if ttl := s.Do(t, "PTTL", k[keyToken]).(int64); ttl > 3_601_000 || ttl < 3_500_000 {
		t.Errorf("PTTL of the counter is %d", ttl)
	}
	if n := s.Do(t, "EXISTS", k[keyQueue], k[keyDue], k[keyTickets]); n != int64(0) {
		t.Errorf("%v helpers for a lock that nobody waits for", n)
	}

	// Two wait: one for itself, and two tickets of one owner.
	two, three, four := m.ticket(name), m.ticket(name), m.ticket(name)
	three.Owner, four.Owner = "nightly", "nightly"
	two.Floor = 7
	for _, w := range []*driver.Ticket{two, three, four} {
		m.take(w, driver.Waiting)
	}
	same(t, "queue", texts(s.Do(t, "LRANGE", k[keyQueue], "0", "-1")), two.ID, "\x01nightly")
	same(t, "tickets", tickets(t, s, k[keyTickets]),
		fmt.Sprintf("\x01nightly=%s\n%s", three.ID, four.ID),
		fmt.Sprintf("%s=1m\n7\n%s\nmeta", two.ID, m.channel),
		fmt.Sprintf("%s=1w\n1\n1\n0\nnightly\n%s\nmeta", three.ID, m.channel),
		fmt.Sprintf("%s=1w\n1\n1\n0\nnightly\n%s\nmeta", four.ID, m.channel))
	for _, w := range []*driver.Ticket{two, three, four} {
		text, _ := s.Do(t, "HGET", k[keyTickets], "\x02"+w.ID).(string)
		at, _ := strconv.ParseInt(text, 10, 64)
		if left := time.Until(time.UnixMilli(at)); left < 20*time.Second || left > 31500*time.Millisecond {
			t.Errorf("%s is due in %v", w.ID, left)
		}
	}
	for _, key := range []string{k[keyQueue], k[keyTickets]} {
		if ttl := s.Do(t, "PTTL", key).(int64); ttl > 62_400 || ttl < 30_000 { // the keys live at least as long as the lease
			t.Errorf("PTTL of %s is %d", key, ttl)
		}
	}

	// A grant to an unnamed ticket looks as if nobody had ever waited.
	m.leaves(one, driver.Held)
	p = m.granted(two)
	same(t, "granted hold", hash(t, s, k[keyLine]),
		fmt.Sprintf("\x01%s=%d\n%s\nmeta", two.ID, p.Token, m.channel), two.ID+"=1")

	// A named owner: the number of its tickets, as Redisson counts holds.
	m.leaves(two, driver.Held)
	p = m.granted(four)
	same(t, "owner's hold", hash(t, s, k[keyLine]), "\x01l=1", "\x01u=1", "nightly=2")
	same(t, "owner's tickets", tickets(t, s, k[keyTickets]),
		fmt.Sprintf("\x01nightly=%s\n%s", three.ID, four.ID),
		fmt.Sprintf("%s=1h\n1\n1\n%d\nnightly\n%s\nmeta", three.ID, p.Token, m.channel),
		fmt.Sprintf("%s=1h\n1\n1\n%d\nnightly\n%s\nmeta", four.ID, p.Token, m.channel))
	same(t, "due", texts(s.Do(t, "ZRANGE", k[keyDue], "0", "-1")), three.ID, four.ID)
	m.leaves(three, driver.Held)
	same(t, "owner's hold", hash(t, s, k[keyLine]), "\x01l=1", "\x01u=1", "nightly=1")
	m.leaves(four, driver.Held)

	// Nothing but the counter stays.
	if n := s.Do(t, append([]string{"EXISTS"}, k[:keyToken]...)...); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}

	// A semaphore: the units of each.
	five, six := m.ticket(name), m.ticket(name)
	five.Limit, six.Limit, six.Units = 5, 5, 2
	m.take(five, driver.Held)
	q := m.take(six, driver.Held)
	want := []string{"\x01l=5", "\x01u=3", five.ID + "=1", six.ID + "=2"}
	same(t, "semaphore", hash(t, s, k[keyLine]), want...)
	if got := s.Do(t, "HGET", k[keyTickets], six.ID); got != fmt.Sprintf("1h\n5\n2\n%d\n\n%s\nmeta", q.Token, m.channel) {
		t.Errorf("ticket of a semaphore is %q", got)
	}
	m.leaves(five, driver.Held)
	m.leaves(six, driver.Held)

	// A tombstone.
	seven := m.ticket(name)
	if _, err := m.Leave(m.ctx(), []driver.Ref{{Ticket: seven, Unsure: true}}); err != nil {
		t.Fatal(err)
	}
	same(t, "tombstone", texts(s.Do(t, "ZRANGE", k[keyDue], "0", "-1")), "\x03"+seven.ID)
	same(t, "tombstone", hash(t, s, k[keyTickets]), seven.ID+"=1x")
	if ttl := s.Do(t, "PTTL", k[keyDue]).(int64); ttl > 300_000 || ttl < 250_000 {
		t.Errorf("PTTL of a tombstone is %d", ttl)
	}
}

// java takes the part of a Redisson client, with its scripts in plain commands:
// it takes the lock when the key is not there or has its own field.
type java struct {
	t *testing.T
	s *backends.RedisServer
	f string // its owner field
}

func (j java) tryLock(key string) bool {
	j.t.Helper()
	if j.s.Do(j.t, "EXISTS", key) == int64(0) || j.s.Do(j.t, "HEXISTS", key, j.f) == int64(1) {
		j.s.Do(j.t, "HINCRBY", key, j.f, "1")
		j.s.Do(j.t, "PEXPIRE", key, "30000")
		return true
	}
	return false
}

func (j java) unlock(key string) {
	j.t.Helper()
	if j.s.Do(j.t, "HEXISTS", key, j.f) != int64(1) {
		j.t.Fatal("Redisson does not hold the lock that it frees")
	}
	if j.s.Do(j.t, "HINCRBY", key, j.f, "-1") == int64(0) {
		j.s.Do(j.t, "DEL", key)
	}
}

// Redisson's RLock and a mutex of the same key exclude each other. (That they
// also wake each other is a matter of channels, not of the layout.)
func TestRedissonIsExcluded(t *testing.T) {
	s := backends.SharedRedis(t)
	m := enter(t, s, "prefix=")
	j := java{t, s, "6c0ad3ae-2b9d-4f3e-9d5c-8f6f1c0f7a11:42"}
	name := "redisson/" + m.uuid

	mine := m.short(name, 2*time.Second)
	m.take(mine, driver.Held)
	if j.tryLock(name) {
		t.Fatal("Redisson takes a lock that is held")
	}
	m.leaves(mine, driver.Held)
	for range 2 { // it counts
		if !j.tryLock(name) {
			t.Fatal("Redisson cannot take a lock that is free, or its own")
		}
	}
	p, err := m.Join(m.ctx(), m.ticket(name), false)
	if err != nil || p.State != driver.Gone {
		t.Fatalf("a lock that Redisson holds: %v, %v", p.State, err)
	}
	line, err := m.Inspect(m.ctx(), name)
	if err != nil || len(line.Tickets) != 1 || line.Tickets[0].ID != j.f || line.Tickets[0].State != driver.Held || line.Limit != 1 {
		t.Errorf("Inspect: %+v, %v", line, err)
	}
	next := m.ticket(name)
	if p := m.take(next, driver.Waiting); p.Recheck < 20*time.Second || p.Recheck > 31*time.Second {
		t.Errorf("Recheck is %v, Redisson's lock lasts 30s", p.Recheck)
	}
	j.unlock(name)
	m.keeps(next, driver.Waiting)
	j.unlock(name)
	m.keeps(next, driver.Held) // it asks, and the lock is free
	if j.tryLock(name) {
		t.Error("Redisson takes a lock that was granted")
	}
	// forceUnlock deletes the key, whoever holds it.
	s.Do(t, "DEL", name)
	m.keeps(next, driver.Gone)
}
