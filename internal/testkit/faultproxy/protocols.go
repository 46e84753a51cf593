package faultproxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync/atomic"
)

// Message is one message of a protocol.
type Message struct {
	Bytes []byte // until the next is read
	// Trip says, of a client's message, that it completes a request, which can be
	// cut, and Pass that the server has to see what came up to now: every Trip is
	// one, and so is what a request does not wait for.
	Trip, Pass bool
	// Done says, of a server's message, that it completes an answer.
	Done bool
	// ID is the connection's at the server, where a server's message says it,
	// else 0.
	ID uint32
}

// Protocol reads the messages of one connection. Both functions return the error
// of the reader, and block as it does; each is called by one goroutine.
type Protocol struct {
	Client, Server func(io.Reader) (Message, error)
}

// unknownProtocol is the protocol of a client that knows none: a message is the
// bytes of one read.
func unknownProtocol() Protocol {
	const size = 64 << 10
	to, from := make([]byte, size), make([]byte, size)
	return Protocol{
		Client: func(r io.Reader) (Message, error) {
			n, err := r.Read(to)
			return Message{Bytes: to[:n], Trip: true, Pass: true}, err
		},
		Server: func(r io.Reader) (Message, error) {
			n, err := r.Read(from)
			return Message{Bytes: from[:n], Done: true}, err
		},
	}
}

// Postgres is the protocol of PostgreSQL.
func Postgres() Protocol {
	first := true
	return Protocol{
		Client: func(r io.Reader) (Message, error) {
			kind, b, err := typed(r, !first)
			m := Message{Bytes: b, Trip: kind == 'S' || kind == 'Q'}
			m.Pass = m.Trip || first || kind == 'X' || kind == 'p'
			first = false
			return m, err
		},
		Server: func(r io.Reader) (Message, error) {
			kind, b, err := typed(r, true)
			m := Message{Bytes: b, Done: kind == 'Z'}
			if kind == 'K' && err == nil {
				m.ID = binary.BigEndian.Uint32(b[5:])
			}
			return m, err
		},
	}
}

// typed returns one message of PostgreSQL's protocol, and its type if it has
// one: the first message of a client has none.
func typed(r io.Reader, has bool) (kind byte, message []byte, err error) {
	head := make([]byte, 4, 5)
	if has {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	size := head
	if has {
		kind, size = head[0], head[1:]
	}
	message = append(head, make([]byte, binary.BigEndian.Uint32(size)-4)...)
	_, err = io.ReadFull(r, message[len(head):])
	return kind, message, err
}

// The commands of a MySQL client that matter here, by their first byte.
const (
	quit     = 0x01
	prepares = 0x16
	adds     = 0x18 // to an argument
	forgets  = 0x19 // a prepared statement
)

// MySQL is the protocol of MySQL and MariaDB, for statements as text and for
// prepared ones, without compression.
func MySQL() Protocol {
	var last atomic.Int32 // command; before the first, all is about passwords
	a := answer{greets: true}
	return Protocol{
		Client: func(r io.Reader) (Message, error) {
			b, err := packet(r)
			m := Message{Bytes: b, Pass: true}
			// A packet with the number 0 begins a command.
			if err == nil && b[3] == 0 && len(b) > 4 && b[4] != quit && b[4] != adds && b[4] != forgets {
				last.Store(int32(b[4]))
				m.Trip = true
			}
			return m, err
		},
		Server: func(r io.Reader) (Message, error) {
			b, err := packet(r)
			command := last.Load()
			if err != nil {
				return Message{}, err
			}
			if !a.greets && command == 0 {
				return Message{Bytes: b}, nil
			}
			return a.next(b, command == prepares), nil
		},
	}
}

// packet returns one packet with its head: three bytes of length, a number.
func packet(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	b := append(head, make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)...)
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

// answer is the server's position within an answer.
type answer struct {
	greets bool // nothing was said yet
	ends   int  // end packets that are still to come of rows: of the columns, of the rows
}

// next tells the end of an answer from the middle of it, that to a statement that
// is prepared or another.
func (a *answer) next(b []byte, prepared bool) Message {
	m := Message{Bytes: b}
	body := b[4:]
	if a.greets {
		// A version of the protocol, that of the server, and the id.
		a.greets = false
		if i := bytes.IndexByte(body, 0); i > 0 && len(body) >= i+5 {
			m.ID = binary.LittleEndian.Uint32(body[i+1:])
		}
		return m
	}
	const fine, end, failed, more = 0x00, 0xfe, 0xff, 0x0008
	switch {
	case len(body) == 0:
	case body[0] == failed:
		a.ends = 0
		m.Done = true
	case a.ends > 0:
		switch {
		case body[0] != end:
		case len(body) == 5: // warnings, status
			a.ends--
			m.Done = a.ends == 0 && (prepared || binary.LittleEndian.Uint16(body[3:])&more == 0)
		default: // newer clients: no end of the columns, and that of the rows is as of no rows
			a.ends = 0
			m.Done = status(body)&more == 0
		}
	case body[0] == fine && prepared:
		// An id, and how many columns and arguments will be described.
		if len(body) >= 9 {
			for _, n := range [][]byte{body[5:7], body[7:9]} {
				a.ends += int(min(1, binary.LittleEndian.Uint16(n)))
			}
		}
		m.Done = a.ends == 0
	case body[0] == fine:
		m.Done = status(body)&more == 0
	default:
		a.ends = 2
	}
	return m
}

// status returns the flags of an answer without rows: they follow two numbers
// of one to nine bytes each.
func status(body []byte) uint16 {
	rest := skipNumber(skipNumber(body[1:]))
	if len(rest) < 2 {
		return 0
	}
	return binary.LittleEndian.Uint16(rest)
}

// skipNumber returns what follows a number of the protocol.
func skipNumber(b []byte) []byte {
	n := 1
	if len(b) > 0 {
		switch b[0] {
		case 0xfc:
			n = 3
		case 0xfd:
			n = 4
		case 0xfe:
			n = 9
		}
	}
	return b[min(n, len(b)):]
}
