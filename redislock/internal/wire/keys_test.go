package wire

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// TestKeysGolden checks the names of the keys, which are the layout: a version
// that writes other names does not exclude clients of this one.
func TestKeysGolden(t *testing.T) {
	for _, c := range []struct {
		prefix, name string
		want         [OwnKeys]string
	}{
		{"holdfast:", "invoice/42", [...]string{
			"holdfast:invoice/42",
			"holdfast_queue:{holdfast:invoice/42}",
			"holdfast_due:{holdfast:invoice/42}",
			"holdfast_tickets:{holdfast:invoice/42}",
		}},
		{"", "myLock", [...]string{"myLock", "holdfast_queue:{myLock}", "holdfast_due:{myLock}",
			"holdfast_tickets:{myLock}"}},
		{"{app}:", "a", [...]string{"{app}:a", "holdfast_queue::{app}:a", "holdfast_due::{app}:a",
			"holdfast_tickets::{app}:a"}},
		{"", "{a}", [...]string{"{a}", "holdfast_queue::{a}", "holdfast_due::{a}",
			"holdfast_tickets::{a}"}},
		{"", "{x", [...]string{"{x", "holdfast_queue:#{6979}{x", "holdfast_due:#{6979}{x",
			"holdfast_tickets:#{6979}{x"}},
		{"", "holdfast_queue:{a}", [...]string{"holdfast_line:holdfast_queue:{a}",
			"holdfast_queue::holdfast_line:holdfast_queue:{a}", "holdfast_due::holdfast_line:holdfast_queue:{a}",
			"holdfast_tickets::holdfast_line:holdfast_queue:{a}"}},
	} {
		if got := [OwnKeys]string(NewQueueKeys(c.prefix, c.name).Keys[:OwnKeys]); got != c.want {
			t.Errorf("%q %q:\n got %q\nwant %q", c.prefix, c.name, got, c.want)
		}
	}
}

// oddNames meet every rule about braces and reserved words.
var oddNames = []string{
	"a", "{a}", "{{a}}", "{a", "a}", "a}b", "}a{", "{}", "{}a", "a{}b", "a{b}c", "a{b}c{d}", "a{}b{c}", "{x", "x}",
	"}", "{", "::", ":", "#{1}", "#{1}a", "{1}a", ":a", ":{a}", "holdfast_", "holdfast_queue:{a}", "holdfast_queue::{a}",
	"holdfast_line:a", "holdfast_line:holdfast_queue:{a}", "holdfast_token:{a}", "holdfast:", "holdfast", "*", "?", "[a]",
	`\`, `a\*`, "a b", "a\nb", "a\x00b", "ä", "日本", "..", "a/b", "%41", strings.Repeat("x", 4096),
}

var oddPrefixes = []string{"", "holdfast:", "h", "holdfast_", "holdfast_line:", "{app}:", "{", "}", "a{", "*"}

// FuzzKeys checks that two queues never share a key, that a queue's keys share
// a slot, and that the keys give the names back.
func FuzzKeys(f *testing.F) {
	for i, p := range oddPrefixes {
		for j, n := range oddNames {
			f.Add(p, n, oddNames[(i+j+1)%len(oddNames)])
		}
	}
	f.Fuzz(func(t *testing.T, prefix, one, two string) {
		if one == "" || two == "" || !utf8.ValidString(prefix+"|"+one+"|"+two) {
			return
		}
		checkKeys(t, prefix, one, two)
	})
}

func checkKeys(t *testing.T, prefix, one, two string) {
	t.Helper()
	a, b := NewQueueKeys(prefix, one), NewQueueKeys(prefix, two)
	if one != two {
		seen := make(map[string]int)
		for i, k := range a.Keys[:OwnKeys] {
			seen[k] = i
		}
		for i, k := range b.Keys[:OwnKeys] {
			if j, ok := seen[k]; ok {
				t.Errorf("prefix %q: key %d of %q is key %d of %q: %q", prefix, j, one, i, two, k)
			}
		}
	}
	for _, k := range a.Keys[:OwnKeys] {
		if Slot(k) != Slot(a.Keys[KeyHolders]) {
			t.Errorf("prefix %q, name %q: %q is in another slot than %q", prefix, one, k, a.Keys[KeyHolders])
		}
	}
	if name, ok := NameOf(prefix, a.Keys[KeyHolders]); !ok || name != one {
		t.Errorf("prefix %q: %q came back as %q, %v", prefix, one, name, ok)
	}
	k, ok := OutOfSlot(strings.TrimPrefix(a.Keys[KeyWaiters], HelperNames[KeyWaiters]))
	if !ok || k != a.Keys[KeyHolders] {
		t.Errorf("prefix %q: queue of %q came back as that of %q, %v", prefix, a.Keys[KeyHolders], k, ok)
	}
}

func TestKeysOfAllOddNames(t *testing.T) {
	for _, p := range oddPrefixes {
		owner := make(map[string]string)
		for _, name := range oddNames {
			checkKeys(t, p, name, name)
			for _, k := range NewQueueKeys(p, name).Keys[:OwnKeys] {
				if other, ok := owner[k]; ok {
					t.Errorf("prefix %q: %q and %q share the key %q", p, other, name, k)
				}
				owner[k] = name
			}
		}
	}
}

func TestKeyCacheKeepsNamesApart(t *testing.T) {
	var c KeyCache
	c.Init("p:", "", false)
	for round := range 3 {
		for i := range 2000 {
			name := fmt.Sprint("name", i)
			if l := c.Get(name); l.name != name || l.Keys[KeyHolders] != "p:"+name {
				t.Fatalf("round %d: %q is kept as %+v", round, name, l)
			}
		}
	}
	if n := testing.AllocsPerRun(10, func() { c.Get("name1") }); n > 0 {
		t.Error("nothing is kept")
	}
}

// TestKeyCacheOfManyGoroutines checks that goroutines which meet in the cache get the
// keys that they ask for.
func TestKeyCacheOfManyGoroutines(t *testing.T) {
	var c KeyCache
	c.Init("p:", "", true)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 5000 {
				name := fmt.Sprint("name", (i*7+g)%400)
				if l, want := c.Get(name), c.Make(name); l != *want {
					t.Errorf("%q has %+v, want %+v", name, l, *want)
					return
				}
			}
		})
	}
	group.Wait()
}

// TestKeysOfManyNames counts the allocations of the requests of a lock among
// more names than the cache keeps, while as many others are held as a crowd
// holds: the keys are built once, with the join, and in one piece.
func TestKeysOfManyNames(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		var q Requests
		q.Init("holdfast:", "holdfast_push:c", sharded, NewScripts())
		const names, held = 10000, 64
		tickets := make([]driver.Ticket, names)
		for i := range tickets {
			tickets[i] = driver.Ticket{ID: "id", Name: fmt.Sprint("orders/", i), Units: 1, Limit: 1, TTL: time.Minute}
		}
		i := 0
		got := testing.AllocsPerRun(names/2, func() {
			q.Join(&tickets[i%names], true, false)
			q.Leave(&driver.Ref{Ticket: &tickets[(i+names-held)%names], State: driver.Held})
			i++
		})
		t.Logf("sharded %v: %v allocations", sharded, got)
		if got > 1 {
			t.Errorf("sharded %v: a lock among %d names allocates %v times for its keys, want once", sharded, names, got)
		}
	}
}
