package wire

import (
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// FuzzStored checks that any stored data are read or refused.
func FuzzStored(f *testing.F) {
	for _, s := range []string{
		"1m\n0\nc\nmeta", "1x", "1w\n1\n1\n0\n\nc\nmeta", "1h\n5\n2\n77\nowner\nc\nmeta\nwith\nlines", "2h\n5\n2\n77\nowner\nc\nmeta", "1w\n1\n2\n0\n\nc\nm",
		"77\nc\nmeta", "0\nc\nm", "held 77 a:1", "gone 0 a:1", "held 0 a:1", "held 77 ", "gone", "", "\n\n\n\n\n\n\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := parseRecord(s); err == nil {
			if r.units < 1 || r.units > r.limit {
				t.Errorf("%q is read as %+v", s, r)
			}
		} else if driver.ClassOf(err) != driver.Refused {
			t.Errorf("%q: %v", s, err)
		}
		if token, _, err := parseHold(s); err == nil && token == 0 || err != nil && driver.ClassOf(err) != driver.Refused {
			t.Errorf("%q is read as token %d, %v", s, token, err)
		}
		if id, p, err := ParsePush(s); err == nil {
			back := "gone 0 " + id
			if p.State == driver.Held {
				back = "held " + strconv.FormatUint(p.Token, 10) + " " + id
			}
			if back != s && !strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(s, "held "), "gone "), "0") {
				t.Errorf("%q is read as %q", s, back)
			}
		}
		ParseInfo(s)
		ClientField(s, "db")
		AtLeast(s, 6, 2)
		sn := snapshot{
			holders: map[string]string{"a:1": "1", mark + "a:1": s}, waiters: []string{"b:1", mark + "o"},
			tickets: map[string]string{"b:1": s, "c:1": s, mark + "o": "c:1\n" + s, expiry + "b:1": "5", expiry + "c:1": s}, token: s,
		}
		_, _ = sn.Queue("n")
		sn.token = "7"
		if l, err := sn.Queue("n"); err == nil && len(l.Tickets) == 0 {
			t.Errorf("%q: a line without tickets", s)
		}
	})
}

// FuzzGlob checks that an escaped text matches only itself.
func FuzzGlob(f *testing.F) {
	for _, s := range []string{"a*b", "[x]", `\`, "?", "^", "a-b", "{}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := GlobEscape(s)
		var back strings.Builder
		for i := 0; i < len(e); i++ {
			if e[i] == '\\' {
				i++
			} else if strings.IndexByte("*?[]^", e[i]) >= 0 {
				t.Fatalf("%q is escaped as %q", s, e)
			}
			back.WriteByte(e[i])
		}
		if back.String() != s {
			t.Errorf("%q became %q", s, back.String())
		}
	})
}
