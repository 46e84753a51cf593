//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
)

// Names, owners and notes come from whoever uses the store. None of them may
// reach a terminal as anything but text: no control characters, and none that
// are invisible or change the direction of writing.

// clean replaces what cannot be printed.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// shown returns a name as it is, or in quotes, with escapes, when it has
// something in it that cannot be seen or that could be mistaken.
func shown(name string) string {
	plain := name != "" && name[0] != '"' && name == strings.TrimSpace(name) && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
	if plain {
		return name
	}
	return strconv.Quote(name)
}

// holderText says who holds, in one line.
func holderText(h holdfast.Holder) string {
	if h == (holdfast.Holder{}) {
		return "unknown"
	}
	h.Since = time.Time{} // shown as an age where it is of use
	return clean(h.String())
}

// age is how long ago something was, by whatever clock said so.
func age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return span(max(0, time.Since(since)))
}

// span is a duration as a person would say it.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Truncate(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// table writes rows in columns. No cell may contain a tab or a line's end.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, escapeJSON(b.String()))
	return err
}

// escapeJSON escapes what package json leaves as it is and a terminal might
// obey. Outside of its strings JSON has nothing of the kind.
func escapeJSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return b.String()
}

// holderJSON is a holder as JSON shows it.
type holderJSON struct {
	Owner string     `json:"owner,omitempty"`
	Host  string     `json:"host,omitempty"`
	PID   int        `json:"pid,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Note  string     `json:"note,omitempty"`
}

// toJSON returns nil for a holder of whom nothing is known.
func toJSON(h holdfast.Holder) *holderJSON {
	if h == (holdfast.Holder{}) {
		return nil
	}
	j := &holderJSON{Owner: h.Owner, Host: h.Host, PID: h.PID, Note: h.Note}
	if !h.Since.IsZero() {
		j.Since = &h.Since
	}
	return j
}

// seconds has no more digits than are of use.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
