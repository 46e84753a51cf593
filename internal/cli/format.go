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

// Names, owners and notes come from other users of the store. They reach a
// terminal as plain text only: without control characters, and without those
// that are invisible or change the direction of writing.

// printable replaces characters that cannot be printed.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// shown returns a name as it is, or quoted and escaped if it contains something
// invisible or ambiguous.
func shown(name string) string {
	plain := name != "" && name[0] != '"' && name == strings.TrimSpace(name) && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
	if plain {
		return name
	}
	return strconv.Quote(name)
}

// holderText describes a holder in one line.
func holderText(h holdfast.Holder) string {
	if h == (holdfast.Holder{}) {
		return "unknown"
	}
	h.Since = time.Time{} // shown as an age where it is useful
	return printable(h.String())
}

// formatAge returns the time since an instant of another machine's clock.
func formatAge(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return formatDuration(max(0, time.Since(since)))
}

// formatDuration returns a duration in the units that a person would use.
func formatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + formatDuration(-d)
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

// escapeJSON escapes the characters that package json leaves alone and a terminal
// might obey. JSON has none of them outside its strings.
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

// holderJSON is a holder in JSON.
type holderJSON struct {
	Owner string     `json:"owner,omitempty"`
	Host  string     `json:"host,omitempty"`
	PID   int        `json:"pid,omitempty"`
	Via   string     `json:"via,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Note  string     `json:"note,omitempty"`
}

// holderToJSON returns nil for an unknown holder.
func holderToJSON(h holdfast.Holder) *holderJSON {
	if h == (holdfast.Holder{}) {
		return nil
	}
	j := &holderJSON{Owner: h.Owner, Host: h.Host, PID: h.PID, Via: h.Via, Note: h.Note}
	if !h.Since.IsZero() {
		j.Since = &h.Since
	}
	return j
}

// seconds returns a duration in seconds, to the millisecond.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
