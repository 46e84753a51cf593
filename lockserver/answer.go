package lockserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast"
)

// field is a member of an answer; members have an order, so that answers are easy to
// read and to compare.
type field struct {
	name  string
	value any // string, bool, int, int64, uint64, fields or []fields
}

type fields []field

// with returns f and another member.
func (f fields) with(name string, value any) fields { return append(f, field{name, value}) }

// MarshalJSON writes the members in their order.
func (f fields) MarshalJSON() ([]byte, error) { return f.appendJSON(make([]byte, 0, 256)), nil }

// encoded returns f as one line of JSON, with its end.
func (f fields) encoded() []byte { return append(f.appendJSON(make([]byte, 0, 256)), '\n') }

func (f fields) appendJSON(b []byte) []byte {
	b = append(b, '{')
	for i, m := range f {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, m.name), ':')
		b = appendValue(b, m.value)
	}
	return append(b, '}')
}

// appendValue appends a value. Those of each answer about a lock need no encoder.
func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		if isPlain(v) {
			return append(append(append(b, '"'), v...), '"')
		}
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case fields:
		return v.appendJSON(b)
	case []fields:
		if v == nil {
			return append(b, "null"...)
		}
		b = append(b, '[')
		for i, f := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = f.appendJSON(b)
		}
		return append(b, ']')
	}
	var other bytes.Buffer
	enc := json.NewEncoder(&other)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return append(b, "null"...) // cannot happen: no value fails
	}
	return append(b, bytes.TrimSuffix(other.Bytes(), []byte{'\n'})...)
}

// isPlain reports whether JSON writes text as it is.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// asText returns f for a shell: lines key=value.
func (f fields) asText() []byte {
	var b bytes.Buffer
	f.writeText(&b, "")
	return b.Bytes()
}

// writeText writes lines key=value. Members of a member have its name before theirs;
// the elements of a list follow each other, with an empty line between them.
func (f fields) writeText(b *bytes.Buffer, prefix string) {
	for _, m := range f {
		switch v := m.value.(type) {
		case fields:
			v.writeText(b, prefix+m.name+"_")
		case []fields:
			for i, e := range v {
				if i > 0 {
					b.WriteByte('\n')
				}
				e.writeText(b, prefix)
			}
		default:
			fmt.Fprintf(b, "%s%s=%s\n", prefix, m.name, plain(fmt.Sprint(v)))
		}
	}
}

// plain replaces characters that would end a line or move a terminal's cursor.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, s)
}

// clip shortens text of a client for an answer.
func clip(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return strings.ToValidUTF8(plain(s), "?")
}

// problem is an answer that is not a success; see RFC 9457.
type problem struct {
	status int
	code   string
	detail string
	more   fields
	after  time.Duration // Retry-After, 0 for none
}

func newProblem(status int, code, format string, args ...any) *problem {
	return &problem{status: status, code: code, detail: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, "bad_request", format, args...)
}

func tooMany(format string, args ...any) *problem {
	p := newProblem(http.StatusTooManyRequests, "too_many", "the principal has "+format+", the most that the server allows", args...)
	p.after = time.Second
	return p
}

func forbidden(right Right, name string) *problem {
	return newProblem(http.StatusForbidden, "forbidden", "the principal has no right to %s %q", right, clip(name))
}

// with returns p and another member.
func (p *problem) with(name string, value any) *problem {
	p.more = p.more.with(name, value)
	return p
}

// body returns the members of p.
func (p *problem) body() fields {
	f := fields{{"title", http.StatusText(p.status)}, {"status", p.status}, {"code", p.code}, {"detail", p.detail}}
	return append(f, p.more...)
}

// entry returns p as an entry of a batch.
func (p *problem) entry(id string) fields {
	f := fields{{"id", id}, {"status", p.status}, {"code", p.code}}
	return append(append(f, p.more...), field{"detail", p.detail})
}

// lost is the problem of a hold that has ended before it was released.
func lost(reason string) *problem {
	return newProblem(http.StatusGone, "lost", "the hold has ended: %s", reason).with("reason", reason)
}

func released() *problem {
	return newProblem(http.StatusGone, "released", "the hold was released")
}

func unknownHold() *problem {
	return newProblem(http.StatusNotFound, "unknown_hold", "the server does not know the id: acquire with resume")
}

func draining() *problem {
	p := newProblem(http.StatusServiceUnavailable, "draining", "the server is about to end: ask the next one")
	p.after = time.Second
	return p
}

// unanswered is the problem of a request that the store has not answered.
func unanswered() *problem {
	return newProblem(http.StatusServiceUnavailable, "store_unknown", "the store has not answered in time")
}

// lostReason returns the name of a reason in answers.
func lostReason(why holdfast.LossReason) string {
	switch why {
	case holdfast.LossExpired:
		return "expired"
	case holdfast.LossMaxHold:
		return "max_hold"
	}
	return "gone"
}

// justEnded is the problem of a hold whose end nobody knows the reason of yet.
func justEnded() *problem {
	return newProblem(http.StatusServiceUnavailable, "store_unknown", "the hold has just ended here: ask again")
}

// problemOf turns an error of the client into an answer. The text of the store's own
// errors is not passed on: it may name hosts and users.
func problemOf(err error) *problem {
	if e, ok := errors.AsType[*holdfast.HeldError](err); ok {
		p := newProblem(http.StatusConflict, "held", "the lock is held by another").with("holder", holderOf(e.Holder))
		if e.Left > 0 {
			p.with("holder_left_ms", e.Left.Milliseconds())
		}
		return p
	}
	if e, ok := errors.AsType[*holdfast.LostError](err); ok {
		return lost(lostReason(e.Reason))
	}
	if e, ok := errors.AsType[*holdfast.StoreError](err); ok {
		switch {
		case e.Refused():
			return newProblem(http.StatusInternalServerError, "internal", "the store refuses the request")
		case e.Unknown():
			return unanswered()
		}
		p := newProblem(http.StatusServiceUnavailable, "store_unavailable", "the store cannot be reached, or refuses service at present")
		p.after = e.RetryAfter()
		return p
	}
	switch {
	case errors.Is(err, errChanged):
		return newProblem(http.StatusServiceUnavailable, "store_unknown", "the owner holds, but its place could not be shared: ask again")
	case errors.Is(err, holdfast.ErrKindMismatch):
		return newProblem(http.StatusConflict, "kind_mismatch", "the name is in use as another kind of lock")
	case errors.Is(err, holdfast.ErrUpgrade):
		return newProblem(http.StatusConflict, "id_in_use", "the id holds the name with fewer units")
	case errors.Is(err, holdfast.ErrReleased):
		return released()
	case errors.Is(err, holdfast.ErrNoTicket):
		return newProblem(http.StatusNotFound, "no_ticket", "the queue has no such ticket")
	case errors.Is(err, holdfast.ErrClosed):
		return draining()
	case errors.Is(err, holdfast.ErrUnsupported):
		return newProblem(http.StatusBadRequest, "unsupported", "the store does not support this")
	case errors.Is(err, holdfast.ErrHeld):
		return newProblem(http.StatusConflict, "held", "the lock is held by another")
	}
	return newProblem(http.StatusInternalServerError, "internal", "the request failed")
}

// holderOf returns what others may know of a holder. The principal is the word of the
// server that holds on its behalf; host, pid and note are the client's own.
func holderOf(h holdfast.Holder) fields {
	f := fields{}
	if server, remote, principal := parseVia(h.Via); principal != "" {
		f = f.with("principal", principal).with("remote", remote).with("via", server)
	} else if h.Via != "" {
		f = f.with("via", h.Via)
	}
	if h.Host != "" {
		f = f.with("host", h.Host)
	}
	if h.PID != 0 {
		f = f.with("pid", h.PID)
	}
	if h.Note != "" {
		f = f.with("note", h.Note)
	}
	if h.Owner != "" && !strings.HasPrefix(h.Owner, ownerPrefix) {
		f = f.with("owner", h.Owner)
	}
	if !h.Since.IsZero() {
		f = f.with("since_ms", h.Since.UnixMilli())
	}
	return f
}

// via returns the server's word on a hold; parseVia reads it.
func via(server, remote, principal string) string {
	if remote == "" {
		remote = "-"
	}
	return server + " " + strings.ReplaceAll(remote, " ", "_") + " " + principal
}

func parseVia(s string) (server, remote, principal string) {
	server, rest, _ := strings.Cut(s, " ")
	remote, principal, _ = strings.Cut(rest, " ")
	return server, remote, principal
}
