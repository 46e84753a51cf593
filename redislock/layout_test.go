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
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// hash returns a hash as "field=value", sorted.
func hash(t *testing.T, s *servers.RedisServer, key string) []string {
	t.Helper()
	list := s.Do(t, "HGETALL", key).([]any)
	var fs []string
	for i := 0; i < len(list); i += 2 {
		fs = append(fs, fmt.Sprintf("%s=%s", list[i], list[i+1]))
	}
	sort.Strings(fs)
	return fs
}

// tickets returns the same as hash, without the times at which tickets are
// due.
func tickets(t *testing.T, s *servers.RedisServer, key string) []string {
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

// TestF66_LayoutGolden checks the stored data, byte for byte: other versions
// depend on this layout.
//
// Covers: F66 on redis, sentinel, cluster.
func TestF66_LayoutGolden(t *testing.T) {
	s := servers.SharedRedis(t)
	m := enter(t, s, "")
	name := "layout/" + m.uuid
	k := keysOf(name)

	// An uncontended mutex: one key, whose content is also a lock of Redisson,
	// and the mark.
	one := m.ticket(name)
	p := m.take(one, driver.Held)
	same(t, "plain hold", hash(t, s, k[wire.KeyHolders]),
		fmt.Sprintf("\x01%s=%d\n%s\nmeta", one.ID, p.Token, m.channel), one.ID+"=1", "mode=holdfast")
	if ttl := s.Do(t, "PTTL", k[wire.KeyHolders]).(int64); ttl > 31_200 || ttl < 20_000 {
		t.Errorf("PTTL is %d", ttl)
	}
	text, _ := s.Do(t, "GET", k[wire.KeyMark]).(string)
	if got, _ := strconv.ParseUint(text, 10, 64); got < p.Token || got > p.Token+uint64(patience/driver.TokenTick) {
		t.Errorf("the mark is %v, the token %d", text, p.Token)
	}
	if ttl := s.Do(t, "PTTL", k[wire.KeyMark]).(int64); ttl != -1 {
		t.Errorf("PTTL of the mark is %d", ttl)
	}
	if n := s.Do(t, "EXISTS", k[wire.KeyWaiters], k[wire.KeyDue], k[wire.KeyTickets]); n != int64(0) {
		t.Errorf("%v helpers for a lock that nobody waits for", n)
	}

	// Two places wait: one of an unnamed ticket, and one of an owner with two
	// tickets.
	two, three, four := m.ticket(name), m.ticket(name), m.ticket(name)
	three.Owner, four.Owner = "nightly", "nightly"
	two.MinToken = 7
	for _, w := range []*driver.Ticket{two, three, four} {
		m.take(w, driver.Waiting)
	}
	same(t, "queue", texts(s.Do(t, "LRANGE", k[wire.KeyWaiters], "0", "-1")), two.ID, "\x01nightly")
	same(t, "tickets", tickets(t, s, k[wire.KeyTickets]),
		fmt.Sprintf("\x01nightly=%s\n%s", three.ID, four.ID),
		fmt.Sprintf("%s=1m\n7\n%s\nmeta", two.ID, m.channel),
		fmt.Sprintf("%s=1w\n1\n1\n0\nnightly\n%s\nmeta", three.ID, m.channel),
		fmt.Sprintf("%s=1w\n1\n1\n0\nnightly\n%s\nmeta", four.ID, m.channel))
	for _, w := range []*driver.Ticket{two, three, four} {
		text, _ := s.Do(t, "HGET", k[wire.KeyTickets], "\x02"+w.ID).(string)
		at, _ := strconv.ParseInt(text, 10, 64)
		if left := time.Until(time.UnixMilli(at)); left < 20*time.Second || left > 31500*time.Millisecond {
			t.Errorf("%s is due in %v", w.ID, left)
		}
	}
	for _, key := range []string{k[wire.KeyWaiters], k[wire.KeyTickets]} {
		if ttl := s.Do(t, "PTTL", key).(int64); ttl > 62_400 || ttl < 30_000 { // the keys live at least as long as the lease
			t.Errorf("PTTL of %s is %d", key, ttl)
		}
	}

	// A grant to an unnamed ticket looks as if no ticket had ever waited.
	m.leaves(one, driver.Held)
	p = m.granted(two)
	same(t, "granted hold", hash(t, s, k[wire.KeyHolders]),
		fmt.Sprintf("\x01%s=%d\n%s\nmeta", two.ID, p.Token, m.channel), two.ID+"=1", "mode=holdfast")

	// A named owner: the number of its tickets, as Redisson counts holds.
	m.leaves(two, driver.Held)
	p = m.granted(four)
	same(t, "owner's hold", hash(t, s, k[wire.KeyHolders]), "\x01l=1", "\x01u=1", "mode=holdfast", "nightly=2")
	same(t, "owner's tickets", tickets(t, s, k[wire.KeyTickets]),
		fmt.Sprintf("\x01nightly=%s\n%s", three.ID, four.ID),
		fmt.Sprintf("%s=1h\n1\n1\n%d\nnightly\n%s\nmeta", three.ID, p.Token, m.channel),
		fmt.Sprintf("%s=1h\n1\n1\n%d\nnightly\n%s\nmeta", four.ID, p.Token, m.channel))
	same(t, "due", texts(s.Do(t, "ZRANGE", k[wire.KeyDue], "0", "-1")), three.ID, four.ID)
	m.leaves(three, driver.Held)
	same(t, "owner's hold", hash(t, s, k[wire.KeyHolders]), "\x01l=1", "\x01u=1", "mode=holdfast", "nightly=1")
	m.leaves(four, driver.Held)

	// Nothing but the mark stays.
	if n := s.Do(t, append([]string{"EXISTS"}, k[:wire.OwnKeys]...)...); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}

	// A semaphore: the units of each.
	five, six := m.ticket(name), m.ticket(name)
	five.Limit, six.Limit, six.Units = 5, 5, 2
	m.take(five, driver.Held)
	q := m.take(six, driver.Held)
	want := []string{"\x01l=5", "\x01u=3", five.ID + "=1", six.ID + "=2", "mode=holdfast"}
	same(t, "semaphore", hash(t, s, k[wire.KeyHolders]), want...)
	if got := s.Do(t, "HGET", k[wire.KeyTickets], six.ID); got != fmt.Sprintf("1h\n5\n2\n%d\n\n%s\nmeta", q.Token, m.channel) {
		t.Errorf("ticket of a semaphore is %q", got)
	}
	m.leaves(five, driver.Held)
	m.leaves(six, driver.Held)

	// A tombstone.
	seven := m.ticket(name)
	if _, err := m.Leave(m.ctx(), []driver.Ref{{Ticket: seven, JoinPending: true}}); err != nil {
		t.Fatal(err)
	}
	same(t, "tombstone", texts(s.Do(t, "ZRANGE", k[wire.KeyDue], "0", "-1")), "\x03"+seven.ID)
	same(t, "tombstone", hash(t, s, k[wire.KeyTickets]), seven.ID+"=1x")
	if ttl := s.Do(t, "PTTL", k[wire.KeyDue]).(int64); ttl > 300_000 || ttl < 250_000 {
		t.Errorf("PTTL of a tombstone is %d", ttl)
	}
}

// java acts as a Redisson client, with its scripts in plain commands: it takes
// the lock if the key does not exist or has its own field.
type java struct {
	t *testing.T
	s *servers.RedisServer
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

// TestRedissonIsExcluded checks that Redisson's RLock and a mutex of the same
// key exclude each other. (Whether they also wake each other depends on
// channels, not on the layout.)
func TestRedissonIsExcluded(t *testing.T) {
	s := servers.SharedRedis(t)
	m := enter(t, s, "prefix=")
	j := java{t, s, "6c0ad3ae-2b9d-4f3e-9d5c-8f6f1c0f7a11:42"}
	name := "redisson/" + m.uuid

	mine := m.short(name, 20*time.Second)
	m.take(mine, driver.Held)
	if j.tryLock(name) {
		t.Fatal("Redisson takes a lock that is held")
	}
	m.leaves(mine, driver.Held)
	for range 2 { // Redisson counts its holds
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
	m.keeps(next, driver.Held) // a renewal finds the lock free
	if j.tryLock(name) {
		t.Error("Redisson takes a lock that was granted")
	}
	// forceUnlock deletes the key, whatever client holds it.
	s.Do(t, "DEL", name)
	m.keeps(next, driver.Gone)
}

// The scripts of Redisson's read/write lock: its read lock and its write lock.
const (
	redissonRead = `local mode = redis.call('hget', KEYS[1], 'mode');
if (mode == false) then
  redis.call('hset', KEYS[1], 'mode', 'read'); redis.call('hset', KEYS[1], ARGV[2], 1);
  redis.call('set', KEYS[2] .. ':1', 1); redis.call('pexpire', KEYS[2] .. ':1', ARGV[1]);
  redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
if (mode == 'read') or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then
  local ind = redis.call('hincrby', KEYS[1], ARGV[2], 1); local key = KEYS[2] .. ':' .. ind;
  redis.call('set', key, 1); redis.call('pexpire', key, ARGV[1]);
  redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1])); return nil; end;
return redis.call('pttl', KEYS[1]);`
	redissonWrite = `local mode = redis.call('hget', KEYS[1], 'mode');
if (mode == false) then
  redis.call('hset', KEYS[1], 'mode', 'write'); redis.call('hset', KEYS[1], ARGV[2], 1);
  redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
if (mode == 'write') then if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
  redis.call('hincrby', KEYS[1], ARGV[2], 1);
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1]); return nil; end; end;
return redis.call('pttl', KEYS[1]);`
)

// TestF131_RedissonReadWriteLock checks that Redisson's read/write lock waits
// while a ticket of Holdfast holds the same name in any way, and that
// Holdfast's is refused, with an error that names the cause, while Redisson's
// holds. An owner whose name is that of the mode field counts as any other.
//
// Covers: F131 on redis.
func TestF131_RedissonReadWriteLock(t *testing.T) {
	s := servers.SharedRedis(t)
	m := enter(t, s, "prefix=")
	const owner = "6c0ad3ae-2b9d-4f3e-9d5c-8f6f1c0f7a11:42"
	theirs := func(name, script string) (waits bool) {
		return s.Do(t, "EVAL", script, "2", name, "{"+name+"}:"+owner+":rwlock_timeout", "30000", owner, owner+":write") != nil
	}
	for what, change := range map[string]func(k *driver.Ticket){
		"mutex":      func(*driver.Ticket) {},
		"owner":      func(k *driver.Ticket) { k.Owner = "nightly" },
		"owner mode": func(k *driver.Ticket) { k.Owner = "mode" },
		"reader":     func(k *driver.Ticket) { k.Limit = driver.RWLimit },
		"semaphore":  func(k *driver.Ticket) { k.Limit, k.Units = 5, 2 },
	} {
		name := "redisson-rw/" + m.uuid + "/" + what
		one, two := m.ticket(name), m.ticket(name)
		change(one)
		change(two)
		two.Units, two.Owner = two.Limit, ""
		m.take(one, driver.Held)
		m.take(two, driver.Waiting)
		for range 2 { // held as taken, and as granted to a waiter
			if !theirs(name, redissonRead) || !theirs(name, redissonWrite) {
				t.Fatalf("%s: Redisson's read/write lock is granted over ours", what)
			}
			l, err := m.Inspect(m.ctx(), name)
			if err != nil || len(l.Tickets) == 0 || l.Tickets[0].State != driver.Held || l.Tickets[0].Owner != one.Owner {
				t.Errorf("%s: Inspect: %+v, %v", what, l, err)
			}
			m.leaves(one, driver.Held)
			if one != two {
				m.granted(two)
				one = two
			}
		}
		m.leaves(one, driver.Gone)
		if n := s.Do(t, "EXISTS", name); n != int64(0) {
			t.Errorf("%s: %q is left", what, hash(t, s, name))
		}
		for _, script := range []string{redissonRead, redissonWrite} {
			if theirs(name, script) {
				t.Fatalf("%s: Redisson's lock waits for nobody", what)
			}
			if _, err := m.Join(m.ctx(), m.ticket(name), true); driver.ClassOf(err) != driver.Refused || err == nil {
				t.Errorf("%s: what Redisson holds: %v", what, err)
			}
			s.Do(t, "DEL", name)
		}
	}
}

// TestF66_LayoutOfEarlierVersions checks that holds of earlier versions, which
// write no mode, count as held, and that the remains of a hold which this
// version granted and an earlier one released count as nothing.
//
// Covers: F66 on redis.
func TestF66_LayoutOfEarlierVersions(t *testing.T) {
	s := servers.SharedRedis(t)
	m := enter(t, s, "")
	name := "before/" + m.uuid
	k := keysOf(name)
	held := m.ticket(name)
	s.Do(t, "HSET", k[wire.KeyHolders], held.ID, "1", "\x01"+held.ID, "77\nc\nmeta")
	s.Do(t, "PEXPIRE", k[wire.KeyHolders], "30000")
	p, err := m.Join(m.ctx(), m.ticket(name), false)
	if err != nil || p.State != driver.Gone || p.Holder != "meta" {
		t.Errorf("held by a client of before: %+v, %v", p, err)
	}
	m.keeps(held, driver.Held)
	next := m.ticket(name)
	m.take(next, driver.Waiting)
	m.leaves(held, driver.Held)
	m.granted(next)
	s.Do(t, "HDEL", k[wire.KeyHolders], next.ID, "\x01"+next.ID) // as earlier versions leave
	last := m.ticket(name)
	m.take(last, driver.Held)
	m.leaves(last, driver.Held)

	s.Do(t, "HSET", k[wire.KeyHolders], "\x01l", "5", "\x01u", "2", "x:1", "2")
	due := strconv.FormatInt(serverTime(t, s).Add(time.Minute).UnixMilli(), 10)
	s.Do(t, "HSET", k[wire.KeyTickets], "x:1", "1h\n5\n2\n77\n\nc\nmeta", "\x02x:1", due)
	s.Do(t, "ZADD", k[wire.KeyDue], due, "x:1")
	for _, key := range []string{k[wire.KeyHolders], k[wire.KeyTickets], k[wire.KeyDue]} {
		s.Do(t, "PEXPIRE", key, "30000")
	}
	other := m.ticket(name)
	if p, err := m.Join(m.ctx(), other, false); driver.ClassOf(err) != driver.Refused {
		t.Errorf("a mutex beside a semaphore of a client of before: %v, %v", p.State, err)
	}
	s.Do(t, append([]string{"DEL"}, k[:wire.OwnKeys]...)...)
}

// TestF117_TombstonesKeepFastPath checks that the tombstones of lost answers
// keep no request from the fast path.
//
// Covers: F117 on redis.
func TestF117_TombstonesKeepFastPath(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	cycle := func() int { // counts the reads that only the slow path makes
		s.Do(t, "CONFIG", "RESETSTAT")
		for range 10 {
			k := m.ticket("n")
			m.take(k, driver.Held)
			m.leaves(k, driver.Held)
		}
		return s.Calls(t, "hlen")
	}
	if n := cycle(); n != 0 {
		t.Fatalf("fresh, a line goes the slow way: %d", n)
	}
	lost := m.ticket("n")
	if _, err := m.Leave(m.ctx(), []driver.Ref{{Ticket: lost, JoinPending: true}}); err != nil {
		t.Fatal(err)
	}
	if n := cycle(); n != 0 {
		t.Errorf("with a tombstone, ten cycles went the slow way %d times", n)
	}
	m.take(lost, driver.Gone)
}
