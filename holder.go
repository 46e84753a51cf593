package holdfast

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Holder describes a client that holds a lock or waits for it, as that client
// told the store. It is information for people; the core decides nothing by it.
type Holder struct {
	Owner string    // the name given with WithOwner, if any
	Host  string    // the machine's host name
	PID   int       // the process on it
	Via   string    // the server that holds on its behalf, and what that knows of it; see WithHolder
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
	if h.PID == 0 {
		b.WriteString("a process")
	} else {
		fmt.Fprintf(&b, "pid %d", h.PID)
	}
	if h.Host != "" {
		fmt.Fprintf(&b, " on %s", printable(h.Host))
	}
	if h.Via != "" {
		fmt.Fprintf(&b, " via %s", printable(h.Via))
	}
	if !h.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", h.Since.Format(time.RFC3339))
	}
	if h.Note != "" {
		fmt.Fprintf(&b, " (%s)", printable(h.Note))
	}
	return b.String()
}

// LogValue returns a group of the fields that are known: host, pid, via, owner,
// note and since.
func (h Holder) LogValue() slog.Value {
	var as []slog.Attr
	if h.Host != "" {
		as = append(as, slog.String("host", h.Host))
	}
	if h.PID != 0 {
		as = append(as, slog.Int("pid", h.PID))
	}
	if h.Via != "" {
		as = append(as, slog.String("via", h.Via))
	}
	if h.Owner != "" {
		as = append(as, slog.String("owner", h.Owner))
	}
	if h.Note != "" {
		as = append(as, slog.String("note", h.Note))
	}
	if !h.Since.IsZero() {
		as = append(as, slog.Time("since", h.Since))
	}
	return slog.GroupValue(as...)
}

// printable replaces the characters by which other clients could harm a
// terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// meta is the stored form of a Holder. Its keys are short because it travels
// with each Join.
type meta struct {
	Owner string `json:"o,omitempty"`
	Host  string `json:"h,omitempty"`
	PID   int    `json:"p,omitempty"`
	Via   string `json:"v,omitempty"`
	Since int64  `json:"t,omitempty"` // Unix milliseconds
	Note  string `json:"n,omitempty"`
}

// maxNote is the longest note, in bytes; with it the metadata stays below
// driver.MaxMeta whatever has to be escaped.
const maxNote = 512

// Bounds on the parts of WithHolder, in bytes.
const (
	maxHost = 256
	maxVia  = 512
)

// check refuses a holder that cannot be stored.
func (h Holder) check() error {
	for _, f := range []struct {
		what, text string
		most       int
	}{{"host", h.Host, maxHost}, {"via", h.Via, maxVia}} {
		switch {
		case len(f.text) > f.most:
			return fmt.Errorf("holdfast: holder: %s is %d bytes long; the maximum is %d", f.what, len(f.text), f.most)
		case !utf8.ValidString(f.text):
			return fmt.Errorf("holdfast: holder: %s is not valid UTF-8", f.what)
		case strings.ContainsFunc(f.text, unicode.IsControl):
			return fmt.Errorf("holdfast: holder: %s contains a control character", f.what)
		}
	}
	return nil
}

// parseHolder reads stored metadata; what another program wrote there, or
// nothing, gives the zero Holder.
func parseHolder(s string) Holder {
	var m meta
	if s == "" || json.Unmarshal([]byte(s), &m) != nil {
		return Holder{}
	}
	h := Holder{Owner: m.Owner, Host: m.Host, PID: m.PID, Via: m.Via, Note: m.Note}
	if m.Since > 0 {
		h.Since = time.UnixMilli(m.Since)
	}
	return h
}

// formatHolder is the reverse of parseHolder; the zero Holder is nil.
func formatHolder(h Holder) []byte {
	if h == (Holder{}) {
		return nil
	}
	m := meta{Owner: h.Owner, Host: h.Host, PID: h.PID, Via: h.Via, Note: h.Note}
	if !h.Since.IsZero() {
		m.Since = h.Since.UnixMilli()
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil // cannot happen: the struct has nothing that fails
	}
	return b
}

// metaEncoder holds the parts of the metadata that are the same for all
// tickets, so that a ticket adds only its time.
type metaEncoder struct{ head, tail string }

func newMetaEncoder(s *settings) metaEncoder {
	h := s.holder
	if !s.replacesHolder {
		h.PID = os.Getpid()
		h.Host, _ = os.Hostname()
		if len(h.Host) > maxHost || !utf8.ValidString(h.Host) {
			h.Host = ""
		}
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // would make six bytes of one
	if err := enc.Encode(meta{Owner: s.owner, Host: h.Host, PID: h.PID, Via: h.Via, Since: 1, Note: s.note}); err != nil {
		return metaEncoder{} // cannot happen: the struct has nothing that fails
	}
	head, tail, _ := strings.Cut(strings.TrimSpace(b.String()), `"t":1`)
	return metaEncoder{head + `"t":`, tail}
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
