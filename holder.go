package holdfast

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Holder says who holds a lock or waits for it, as that party told the store.
// It is information for people; nothing is decided by it.
type Holder struct {
	Owner string    // the name given with WithOwner, if any
	Host  string    // the machine's host name
	PID   int       // the process on it
	Since time.Time // when it asked for the lock, by its own clock
	Note  string    // the text given with WithNote, if any
}

// String returns one line without control characters, and without any that
// cannot be seen or that change the direction of writing.
func (h Holder) String() string {
	var b strings.Builder
	if h.Owner != "" {
		fmt.Fprintf(&b, "owner %s, ", printable(h.Owner))
	}
	fmt.Fprintf(&b, "pid %d on %s", h.PID, printable(h.Host))
	if !h.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", h.Since.Format(time.RFC3339))
	}
	if h.Note != "" {
		fmt.Fprintf(&b, " (%s)", printable(h.Note))
	}
	return b.String()
}

// printable keeps terminals safe from what other clients wrote.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// meta is the stored form of a Holder. Short names: it travels with each join.
type meta struct {
	Owner string `json:"o,omitempty"`
	Host  string `json:"h,omitempty"`
	PID   int    `json:"p,omitempty"`
	Since int64  `json:"t,omitempty"` // Unix milliseconds
	Note  string `json:"n,omitempty"`
}

// maxNote is the longest note, in bytes; with it the metadata stays below
// driver.MaxMeta whatever has to be escaped.
const maxNote = 512

// parseHolder reads stored metadata; what another program wrote there, or
// nothing, gives the zero Holder.
func parseHolder(s string) Holder {
	var m meta
	if s == "" || json.Unmarshal([]byte(s), &m) != nil {
		return Holder{}
	}
	h := Holder{Owner: m.Owner, Host: m.Host, PID: m.PID, Note: m.Note}
	if m.Since > 0 {
		h.Since = time.UnixMilli(m.Since)
	}
	return h
}

// metaEncoder holds what of the metadata does not change between tickets, so
// that a ticket only adds its time.
type metaEncoder struct{ head, tail string }

func newMetaEncoder(owner, note string) metaEncoder {
	host, _ := os.Hostname()
	if len(host) > 256 || !utf8.ValidString(host) {
		host = ""
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // would make six bytes of one
	if err := enc.Encode(meta{Owner: owner, Host: host, PID: os.Getpid(), Since: 1, Note: note}); err != nil {
		return metaEncoder{} // cannot happen: the struct has nothing that fails
	}
	head, tail, _ := strings.Cut(strings.TrimSpace(b.String()), `,"t":1`)
	return metaEncoder{head + `,"t":`, tail}
}

// write adds the metadata of a ticket made at now.
func (e metaEncoder) write(b *strings.Builder, now time.Time) {
	if e.head == "" {
		return
	}
	var num [20]byte
	b.WriteString(e.head)
	b.Write(strconv.AppendInt(num[:0], now.UnixMilli(), 10))
	b.WriteString(e.tail)
}
