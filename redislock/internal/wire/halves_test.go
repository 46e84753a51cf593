package wire

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestHalvesWriteTheSameLayout grants locks of each kind that nobody holds by the first
// half of the join and by the second one, and releases each by the first half of the
// leave and by the second one. Both write the same keys, and leave none behind.
func TestHalvesWriteTheSameLayout(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	first := func(file string) *Script {
		return NewScript(scriptOf(file).Text + "\nreturn 'second half'")
	}
	second := func(known, file string) *Script {
		return NewScript(known + "\n" + scriptOf("call", "queue", "grants", file).Text)
	}
	joins := []*Script{first("grant"), second("local min_token = tonumber(ARGV[6])", "join")}
	leaves := []*Script{first("release"), second("local released = false", "leave")}
	var q Requests
	q.Init("", "push", false, NewScripts())
	token := regexp.MustCompile(`[0-9]{13,}`) // and times
	for i, kind := range []driver.Ticket{
		{Limit: 1, Units: 1, Owner: "nightly"},
		{Limit: 1, Units: 1, Owner: "nightly", MinToken: 7},
		{Limit: driver.RWLimit, Units: 1},
		{Limit: driver.RWLimit, Units: driver.RWLimit},
		{Limit: driver.RWLimit, Units: 1, Owner: "nightly"},
		{Limit: 5, Units: 2, Meta: "a\nb"},
	} {
		var layouts [2]string
		for j, join := range joins {
			for l, leave := range leaves {
				what := fmt.Sprintf("kind %d, half %d of the join, half %d of the leave", i, j+1, l+1)
				k := kind
				k.ID, k.Name, k.TTL = "id", "lock", 10*time.Second
				r := q.Join(&k, true, false)
				r.Script, r.Full = join, true
				granted, ok := s.Do(t, r.Words()...).(int64)
				if !ok || granted < 1<<20 {
					t.Fatalf("%s: token %d", what, granted)
				}
				layout := ""
				for n, key := range r.Keys[:OwnKeys] {
					left := s.Do(t, "PTTL", key).(int64)
					most := driver.Keep(k.TTL).Milliseconds()
					if n != KeyHolders {
						most *= 2
					}
					if left != -2 && (left > most+1 || left < most-5000) {
						t.Errorf("%s: %s expires in %d ms, of %d", what, key, left, most)
					}
					content := any(nil)
					switch n {
					case KeyHolders, KeyTickets:
						content = s.Do(t, "HGETALL", key)
					case KeyWaiters:
						content = s.Do(t, "LRANGE", key, "0", "-1")
					case KeyDue:
						content = s.Do(t, "ZRANGE", key, "0", "-1")
					}
					layout += fmt.Sprintf("%s %q\n", key, fmt.Sprint(content))
				}
				layout = token.ReplaceAllString(layout, "N")
				if layouts[0] == "" {
					layouts[0] = layout
				}
				if layout != layouts[0] {
					t.Errorf("%s:\n%s, and before:\n%s", what, layout, layouts[0])
				}
				r = q.Leave(&driver.Ref{Ticket: &k, State: driver.Held})
				r.Script, r.Full = leave, true
				if got := s.Do(t, r.Words()...); got != int64(2) {
					t.Errorf("%s: the leave answers %v", what, got)
				}
				for _, key := range r.Keys[:OwnKeys] {
					if n := s.Do(t, "EXISTS", key); n != int64(0) {
						t.Errorf("%s: %s is left", what, key)
					}
				}
			}
		}
	}
}

// TestFirstHalfLeavesOthersAlone releases tickets that are not the only ones of their
// queue: the first half of the leave goes on to the second one, and changes nothing.
func TestFirstHalfLeavesOthersAlone(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	var q Requests
	q.Init("", "push", false, NewScripts())
	half := NewScript(scriptOf("release").Text + "\nreturn 'second half'")
	mine := driver.Ticket{ID: "mine", Name: "lock", TTL: 10 * time.Second, Limit: 1, Units: 1, Owner: "nightly"}
	join := func(k *driver.Ticket) {
		t.Helper()
		r := q.Join(k, true, false)
		r.Full = true
		s.Do(t, r.Words()...)
	}
	keys := q.Make("lock").All()
	for what, f := range map[string]func(){
		"a second ticket of the owner": func() { k := mine; k.ID = "other"; join(&k) },
		"a waiter":                     func() { k := mine; k.ID, k.Owner = "other", ""; join(&k) },
		"a plain hold after K was evicted": func() {
			s.Do(t, "DEL", keys[KeyHolders])
			s.Do(t, "HSET", keys[KeyHolders], "other", "1", "\x01other", "77\nc\nm", "mode", "holdfast")
		},
		"an owner's hold after K was evicted": func() {
			s.Do(t, "HSET", keys[KeyHolders], "other", "1", "\x01u", "1")
			s.Do(t, "HDEL", keys[KeyHolders], mine.Owner)
		},
		"its time is over": func() { s.Do(t, "HSET", keys[KeyTickets], "\x02mine", strconv.Itoa(77)) },
		"a tombstone":      func() { s.Do(t, "HSET", keys[KeyTickets], "gone", "1x") },
	} {
		join(&mine)
		f()
		before := s.Do(t, "HGETALL", keys[KeyHolders])
		r := q.Leave(&driver.Ref{Ticket: &mine, State: driver.Held})
		r.Script, r.Full = half, true
		if got := s.Do(t, r.Words()...); got != "second half" {
			t.Errorf("%s: the first half answers %v", what, got)
		}
		if after := s.Do(t, "HGETALL", keys[KeyHolders]); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: the holders are %q, and were %q", what, after, before)
		}
		s.Do(t, "FLUSHALL")
	}
}
