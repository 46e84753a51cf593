package lockserver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// beginStream writes the head of an answer without an end.
func (c *call) beginStream() {
	kind := "application/x-ndjson"
	if c.text {
		kind = "text/plain; charset=utf-8"
	}
	c.status = http.StatusOK
	c.w.Header().Set("Content-Type", kind)
	c.w.WriteHeader(http.StatusOK)
}

// sendEvent writes one event of a stream. It blocks for at most ioTimeout where the
// connection allows a bound, and returns an error if the connection is of no use.
func (c *call) sendEvent(e fields) error {
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(ioTimeout)) // not every server can
	out := e.encoded()
	if c.text {
		out = e.words()
	}
	if _, err := c.w.Write(out); err != nil {
		return err
	}
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// words returns an event for a shell: its name, and then key=value for each member.
func (f fields) words() []byte {
	var b bytes.Buffer
	f.writeWords(&b, "")
	b.WriteByte('\n')
	return b.Bytes()
}

func (f fields) writeWords(b *bytes.Buffer, prefix string) {
	for _, m := range f {
		switch v := m.value.(type) {
		case fields:
			v.writeWords(b, prefix+m.name+"_")
		case []fields:
			for i, e := range v {
				e.writeWords(b, prefix+m.name+strconv.Itoa(i+1)+"_")
			}
		default:
			word := plain(fmt.Sprint(v))
			if strings.ContainsAny(word, " \"'\\") {
				word = strconv.Quote(word)
			}
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			if m.name != "event" {
				b.WriteString(prefix + m.name + "=")
			}
			b.WriteString(word)
		}
	}
}
