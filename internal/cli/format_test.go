//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
)

// checkText fails when a text would do anything to a terminal but show up.
func checkText(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%q contains %U", text, r)
			return
		}
	}
}

func TestShown(t *testing.T) {
	for name, want := range map[string]string{
		"a":            "a",
		"invoice/42 b": "invoice/42 b",
		"日本":           "日本",
		"":             `""`,
		" a":           `" a"`,
		`"a"`:          `"\"a\""`,
		"a\tb":         `"a\tb"`,
		"a\u202eb":     `"a\u202eb"`,
		"\xff":         `"\xff"`,
		"\ufffd":       `"` + "\ufffd" + `"`,
	} {
		if got := shown(name); got != want {
			t.Errorf("shown(%q) = %s, want %s", name, got, want)
		}
	}
}

// FuzzText writes names and metadata of strangers in every way there is.
func FuzzText(f *testing.F) {
	f.Add("name", "owner", "host", "note")
	f.Add("\x1b[2J", "\u009b2J", "a\nb\tc", "\u202e")
	f.Add("\xff\xfe", "\x7f", "\U000e0001", "\u2028")
	f.Fuzz(func(t *testing.T, name, owner, host, note string) {
		holder := holdfast.Holder{Owner: owner, Host: host, Note: note, PID: 1, Since: time.Now()}
		line := holdfast.LockInfo{Name: name, Size: 1, Holders: []holdfast.TicketInfo{{ID: name, Holder: holder, Units: 1}}}
		var b bytes.Buffer
		if err := table(&b, listing([]holdfast.LockInfo{line})); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.String(), "\n"); n != 2 {
			t.Errorf("%d lines for one lock: %q", n, b.String())
		}
		if err := table(&b, ticketRows(line)); err != nil {
			t.Fatal(err)
		}
		checkText(t, b.String())

		var j bytes.Buffer
		if err := writeJSON(&j, queueDetail(line)); err != nil {
			t.Fatal(err)
		}
		checkText(t, j.String())
		var back detailJSON
		if err := json.Unmarshal(j.Bytes(), &back); err != nil {
			t.Fatalf("%q: %v", j.String(), err)
		}
		if utf8.ValidString(name) && back.Name != name || utf8.ValidString(note) && back.Tickets[0].Holder.Note != note {
			t.Errorf("%q became %q, %q became %q", name, back.Name, note, back.Tickets[0].Holder.Note)
		}
	})
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                     "0s",
		1234 * time.Microsecond:               "1ms",
		1250 * time.Millisecond:               "1.2s",
		62 * time.Second:                      "1m02s",
		3*time.Hour + 4*time.Minute:           "3h04m",
		50 * time.Hour:                        "2d02h",
		-1500 * time.Millisecond:              "-1.5s",
		59*time.Second + 999*time.Millisecond: "59.9s",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("span(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		line  string
		width int
		want  string
	}{
		{"short", 20, "short"}, {"0123456789", 11, "0123456789"}, {"0123456789", 10, "012345678"}, {"日本語", 6, "日本"},
	} {
		if got := fit(tt.line, tt.width); got != tt.want {
			t.Errorf("fit(%q, %d) = %q, want %q", tt.line, tt.width, got, tt.want)
		}
	}
}
