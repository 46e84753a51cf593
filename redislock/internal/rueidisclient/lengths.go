package rueidisclient

import (
	"bytes"
	"fmt"
	"net"
)

// rueidis allocates the length that a server announces before the data arrive:
// a length that is negative, or beyond the memory, ends the process. Such
// lengths come from a wrong port, a broken network, or a faulty server.
const (
	// longestText is the most bytes of one value that Redis allows by default.
	longestText = 512 << 20
	longestList = 1 << 24
	// longestHeader is the most bytes of a header, more than the digits of any
	// length need.
	longestHeader = 24
)

// words is the kind of an answer that ends with its line and has no length.
const words = '+'

// measured is a connection that fails if the server announces too great a
// length.
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

// lengths reads the lengths in a server's answers, in the same steps as
// rueidis. The zero value is ready for the first byte.
type lengths struct {
	skip   int    // bytes that contain no lengths
	kind   byte   // of the answer being read; 0 between two
	header []byte // the part of a length read so far
	broken bool   // this is no answer, which rueidis notices by itself
	err    error  // an impossible length
}

// see takes the bytes that were read, and returns an error if they have an
// impossible length.
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
		piece := b
		if end >= 0 {
			piece = b[:end]
		}
		if l.kind != words {
			if len(l.header)+len(piece) > longestHeader {
				return l.bad(piece)
			}
			if len(l.header) > 0 || end < 0 { // a read ended within a header
				l.header = append(l.header, piece...)
				piece = l.header
			}
			// The end of bytes that are no length may never come.
			if end < 0 && !begins(piece) || end >= 0 && !l.measure(piece) {
				return l.bad(piece)
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

// measure takes in a header, and reports whether its length is possible.
func (l *lengths) measure(header []byte) bool {
	digits, whole := bytes.CutSuffix(header, []byte{'\r'})
	maps := l.kind == '%' || l.kind == '|'
	if string(digits) == "-1" { // the absence of an answer
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

// begins reports whether a header may begin with these bytes.
func begins(header []byte) bool {
	for i, c := range header {
		if (c < '0' || c > '9') && (c != '-' || i > 0) && (c != '\r' || i < len(header)-1) {
			return false
		}
	}
	return true
}

func (l *lengths) bad(header []byte) error {
	l.broken, l.err = true, fmt.Errorf("redis: the reply announces an impossible length %.24q", header)
	return l.err
}
