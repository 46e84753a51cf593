package drivertest

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Nasty returns names that have been one lock where they should have been two,
// or none at all: with bytes that stores read as separators, patterns, quotes
// or ends, in forms that collations and file systems fold, and of lengths that
// columns cut. All are legal, and all are different.
func Nasty() []string {
	long := strings.Repeat("n", 191)
	names := []string{
		"a", "A", "ä", "Ä", "á", "a\u0301", "ß", "ss", "ſs", "ı", "i", "I", "İ", "ﬁ", "fi", "Ａ", "ǆ", "Å", "\u212b",
		"a ", "a  ", " a", "a\x00", "a\x00b", "\x00", "a\n", "a\r\n", "a\t", "a\x1f", "a\x7f", "a\u0085", "a\u200b", "a\ufeff", "a\u202e",
		"a/", "a//", "/a", "a/b", "a/b/c", "a//b", "a/./b", "a/../b", "a/..", "..", ".", "/", "//", "\\", "a\\b", "C:", "CON", "~", "~a", "-", "--", "-rf",
		"*", "**", "?", "[a]", "[^b]", "a*", "%", "%%", "%2F", "%2f", "%41", "%00", "_", "a_b", "a%b", "a.b", "a,b", "a;b", "a:b", "a|b", "a&b", "a=b", "a+b", "a#b", "a@b", "a!b",
		"'", "''", "\"", "`", "$1", "${a}", "$(a)", ":a", "@a", "--a", "/*a*/", "a'; DROP TABLE locks; --",
		"{", "}", "{}", "{}a", "a{}", "{a}", "{a}b", "b{a}", "a}b", "a{b", "{a}{b}", "{{a}}", "}{", "{x", "a:{b}:c",
		"0", "00", "1", "-1", "0x1", "1e1", "nil", "null", "NULL", "true", "undefined",
		"lock", "_lock", "lock-0000000000", "a:waiters", "a:token", "redisson_lock_queue:{a}", "世界", "🔒", "🔒\ufe0f", "\U0010ffff",
		long, long + "n", long + "m", strings.ToUpper(long), strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("n", 767), strings.Repeat("n", 768), strings.Repeat("界", 256), strings.Repeat("界", 1000), strings.Repeat("/", 600), strings.Repeat("a/", 600),
	}
	return names
}

var nameCases = []Case{
	{Name: "nasty-names", Rules: "Driver 9, Names 1, F61, F62", run: func(w *world) {
		// Every name is a queue of its own: all are held at once, each is
		// inspected alone, and all are listed as they were given.
		a := w.client()
		var all []string
		held := make(map[string]*driver.Ticket)
		add := func(name string) {
			t := a.mutex("")
			t.Name = name
			all = append(all, name)
			held[name] = t
			ctx, cancel := w.limit()
			defer cancel()
			if p, err := a.d.Join(ctx, t, true); err != nil {
				w.Errorf("Join of name %.40q (%d bytes): %v", name, len(name), err)
			} else if p.State != driver.Held {
				w.Errorf("name %.40q (%d bytes) is %v: another name excludes it", name, len(name), p.State)
			}
		}
		for _, s := range Nasty() {
			add(w.tag + s)
			if len(s) < 8 {
				add(s + "/" + w.tag)
			}
		}
		for _, last := range []string{"a", "A", "b", " "} {
			add(w.tag + strings.Repeat("n", driver.MaxName-len(w.tag)-1) + last)
		}
		for name, t := range held {
			if l := w.queueOf(name); len(l.Tickets) != 1 || l.Tickets[0].ID != t.ID {
				w.Errorf("the line of name %.40q (%d bytes) is %s, want held:%s", name, len(name), formatQueue(l), t.ID)
			}
		}
		var ours []string
		for _, name := range a.listNames("") {
			if strings.Contains(name, w.tag) {
				ours = append(ours, name)
			}
		}
		slices.Sort(all)
		for _, name := range all {
			if n := len(ours) - len(slices.DeleteFunc(slices.Clone(ours), func(s string) bool { return s == name })); n != 1 {
				w.Errorf("name %.40q (%d bytes) is listed %d times", name, len(name), n)
			}
		}
		if len(ours) != len(all) {
			w.Errorf("%d names are listed, want %d", len(ours), len(all))
		}
		for name, t := range held {
			if p := a.leaveAll([]driver.Ref{{Ticket: t, State: driver.Held}})[0]; p.State != driver.Held {
				w.Errorf("name %.40q (%d bytes): Leave answers %v", name, len(name), p.State)
			}
			a.forget(t)
		}
		w.checkNames(a, w.tag)
	}},
	{Name: "bare-names", Rules: "Driver 9, F61, F62", run: func(w *world) {
		// The same for names that are nothing but a separator or a pattern.
		// They may be in use by others: what is in the way is broken.
		a := w.client()
		for _, name := range []string{"/", ".", "..", "*", "?", " ", "\x00", "%", "~", "{", "}", "{}", "'", "0", "-"} {
			for _, e := range w.queueOf(name).Tickets {
				ctx, cancel := w.limit()
				_ = a.d.Break(ctx, name, e.ID)
				cancel()
			}
			t := a.mutex("")
			t.Name = name
			a.join(t, driver.Held)
			w.checkQueue(name, []*driver.Ticket{t})
			if !slices.Contains(a.listNames(name), name) {
				w.Errorf("name %q is not listed", name)
			}
		}
	}},
	{Name: "nasty-owners", Rules: "Driver 9, Join 7, F61", Needs: Owner, run: func(w *world) {
		// Owners come back byte for byte, and are told apart.
		long := strings.Repeat("o", driver.MaxOwner-1)
		w.checkDistinctOwners("a", "A", "a ", " a", "ä", "a\u0308", "a:1", "a/b", "{a}", "*", "%", "%41", "'", `"`, "\\", "0", "00", long, long+"p", long+"q")
	}},
}
