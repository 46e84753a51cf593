// Package stepcut breaks the connection of a client to its database in every
// round trip of every request, and looks at what is left in the line: the tests
// of the SQL stores share it.
package stepcut

import (
	"io"
	"net"
	"sync"
	"testing"
)

// How a round trip is cut.
const (
	cutBefore = "before it was sent"
	cutAfter  = "after it was answered"
	cutKilled = "by an operator"
)

// Message is one message of a protocol.
type Message struct {
	Bytes []byte
	// Trip says, of a client's message, that it completes a round trip's
	// request, and Pass that the server has to see it now: every Trip is one.
	Trip, Pass bool
	// Done says, of a server's message, that it completes an answer.
	Done bool
	// ID is the connection's at the server, where a server's message says it.
	ID uint32
}

// Protocol reads messages of one connection. It is called by one goroutine for
// each direction.
type Protocol struct {
	Client, Server func(io.Reader) (Message, error)
}

// cutter passes connections on to a server, a round trip at a time, and cuts the
// one it was armed for.
type cutter struct {
	l        net.Listener
	wg       sync.WaitGroup
	protocol func() Protocol
	kill     func(id uint32)

	mu   sync.Mutex
	left int // round trips until the cut, 0 for none
	how  string
}

// arm has the k-th round trip from now cut.
func (c *cutter) arm(k int, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.how = k, how
}

// disarm says whether the cut was still to come.
func (c *cutter) disarm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waits := c.left > 0
	c.left = 0
	return waits
}

// next returns how the round trip that begins is to be cut, or "".
func (c *cutter) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return ""
	}
	if c.left--; c.left > 0 {
		return ""
	}
	return c.how
}

func newCutter(t *testing.T, addr string, protocol func() Protocol, kill func(id uint32)) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l, protocol: protocol, kill: kill}
	c.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			w := &wire{c: c, Protocol: protocol(), in: in, out: out, id: make(chan uint32, 1), deaf: make(chan struct{}), ended: make(chan struct{})}
			c.wg.Go(w.answers)
			c.wg.Go(w.requests)
		}
	})
	t.Cleanup(func() { _ = l.Close(); c.wg.Wait() })
	return c
}

// wire is one connection through the cutter.
type wire struct {
	Protocol
	c       *cutter
	in, out net.Conn
	id      chan uint32   // of the connection at the server
	deaf    chan struct{} // closed: answers are kept from the client
	ended   chan struct{} // closed when the server has answered a deaf client
}

// requests collects what the client sends up to the end of a round trip.
func (w *wire) requests() {
	defer w.in.Close()
	defer w.out.Close()
	var trip []byte
	for {
		m, err := w.Client(w.in)
		if err != nil {
			return
		}
		trip = append(trip, m.Bytes...)
		if !m.Pass {
			continue
		}
		how := ""
		if m.Trip {
			how = w.c.next()
		}
		switch how {
		case cutBefore:
			return
		case cutKilled:
			w.c.kill(<-w.id)
		case cutAfter:
			close(w.deaf)
		}
		if _, err := w.out.Write(trip); err != nil && how == "" {
			return
		}
		if how == cutAfter {
			<-w.ended
			return
		}
		trip = trip[:0]
	}
}

// answers passes on what the server says.
func (w *wire) answers() {
	defer w.in.Close()
	defer close(w.ended)
	for {
		m, err := w.Server(w.out)
		deaf := false
		select {
		case <-w.deaf:
			deaf = true
		default:
		}
		if err != nil || deaf && m.Done {
			return
		}
		if m.ID != 0 {
			w.id <- m.ID
		}
		if deaf {
			continue
		}
		if _, err := w.in.Write(m.Bytes); err != nil {
			return
		}
	}
}
