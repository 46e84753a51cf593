package redislock

import (
	"bytes"
	"fmt"
	"net"
)

// rueidis makes room for what a server announces before it arrives: a length that
// is negative, or beyond what memory can have, ends the process. Such ones come
// from a wrong port, a broken network, or a server gone mad.
const (
	// longestText is in bytes: what Redis may have in one value, unless told
	// otherwise.
	longestText = 512 << 20
	longestList = 1 << 24
	// longestHeader is in bytes, and so is of more digits than either.
	longestHeader = 24
)

// words is the kind of what ends with its line and has no length.
const words = '+'

// measured is a connection whose server announces nothing that is too long.
type measured struct {
	net.Conn
	lengths lengths
}

// Read implements net.Conn.
func (m *measured) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if bad := m.lengths.see(b[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

// lengths reads the lengths in what a server says, in the steps in which rueidis
// does. The zero value is ready for the first byte.
type lengths struct {
	skip   int    // bytes that are no lengths
	kind   byte   // of what is being read, 0 between two
	header []byte // what has come of a length
	broken bool   // this is no answer, which rueidis sees by itself
	err    error  // a length that cannot be
}

// see takes what was read, and returns an error when it has a length that cannot
// be.
func (l *lengths) see(b []byte) error {
	for len(b) > 0 && !l.broken {
		if l.skip > 0 {
			n := min(l.skip, len(b))
			l.skip -= n
			b = b[n:]
			continue
		}
		if l.kind == 0 {
			l.begin(b[0])
			b = b[1:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end]
		}
		if l.kind != words {
			if len(l.header)+len(part) > longestHeader {
				return l.bad(part)
			}
			if len(l.header) > 0 || end < 0 { // a read ended in it
				l.header = append(l.header, part...)
				part = l.header
			}
			// Of what is no length the end may never come.
			if end < 0 && !begins(part) || end >= 0 && !l.measure(part) {
				return l.bad(part)
			}
		}
		if end < 0 {
			return nil
		}
		l.kind, l.header, b = 0, l.header[:0], b[end+1:]
	}
	return l.err
}

// begin takes the first byte of an answer, or of a part of one.
func (l *lengths) begin(kind byte) {
	switch kind {
	case '_', '.':
		l.skip = 2
	case '#':
		l.skip = 3
	case '+', '-', ',', '(', ':':
		l.kind = words
	case '$', '!', '=', '*', '~', '>', '%', '|':
		l.kind = kind
	default:
		l.broken = true
	}
}

// measure takes in a header, and says whether its length can be.
func (l *lengths) measure(header []byte) bool {
	digits, whole := bytes.CutSuffix(header, []byte{'\r'})
	maps := l.kind == '%' || l.kind == '|'
	if string(digits) == "-1" { // nothing
		return whole && !maps
	}
	n := int64(0)
	for _, c := range digits {
		if c < '0' || c > '9' || n > longestText {
			return false
		}
		n = 10*n + int64(c-'0')
	}
	switch {
	case l.kind == '$' || l.kind == '!' || l.kind == '=':
		l.skip = int(n) + 2
		return whole && n <= longestText
	case maps:
		n *= 2
	}
	return whole && n <= longestList
}

// begins says whether a header may begin like this.
func begins(header []byte) bool {
	for i, c := range header {
		if (c < '0' || c > '9') && (c != '-' || i > 0) && (c != '\r' || i < len(header)-1) {
			return false
		}
	}
	return true
}

func (l *lengths) bad(header []byte) error {
	l.broken, l.err = true, fmt.Errorf("redis: the server announces a length of %.24q", header)
	return l.err
}
