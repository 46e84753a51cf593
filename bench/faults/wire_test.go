package faults

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// wire is the way of one program to the store. It passes everything on until it
// is told otherwise.
type wire struct {
	to   string
	name []byte // of the lock: requests that are about it contain it
	l    net.Listener
	wg   sync.WaitGroup

	mu     sync.Mutex
	quiet  chan struct{} // closed when the wire speaks again; nil while it does
	robs   bool
	robbed chan struct{}
	conns  map[net.Conn]bool
	closed bool
}

func lay(t *testing.T, to, name string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{to: to, name: []byte(name), l: l, conns: map[net.Conn]bool{}}
	w.wg.Add(1)
	go w.accept()
	t.Cleanup(func() {
		w.speak()
		l.Close()
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		w.cut()
		w.wg.Wait()
	})
	return w
}

func (w *wire) addr() string { return w.l.Addr().String() }

func (w *wire) accept() {
	defer w.wg.Done()
	for {
		c, err := w.l.Accept()
		if err != nil {
			return
		}
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			w.serve(c)
		}()
	}
}

func (w *wire) serve(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer s.Close()
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.conns[c], w.conns[s] = true, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.conns, c)
		delete(w.conns, s)
		w.mu.Unlock()
	}()
	var rob sync.Once
	victim := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.Close()
		pump(c, s, w.wait, func(b []byte) bool {
			if w.takes(b) {
				rob.Do(func() { close(victim) })
			}
			return true
		})
	}()
	pump(s, c, w.wait, func([]byte) bool {
		select {
		case <-victim: // the store has done it, and nobody hears of it
			close(w.robbed)
			return false
		default:
			return true
		}
	})
	c.Close()
	s.Close()
	<-done
}

// pump copies until one side ends, or look says no to what was read.
func pump(from, to net.Conn, wait func(), look func([]byte) bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		wait()
		if n > 0 {
			if !look(b[:n]) {
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait blocks while the wire is silent.
func (w *wire) wait() {
	w.mu.Lock()
	q := w.quiet
	w.mu.Unlock()
	if q != nil {
		<-q
	}
}

// takes says whether this is the request whose answer is to be lost.
func (w *wire) takes(b []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.robs || !bytes.Contains(b, w.name) {
		return false
	}
	w.robs = false
	return true
}

// rob loses the answer to the next request about the lock, and the connection
// with it. What it returns is closed when that has happened.
func (w *wire) rob() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.robs, w.robbed = true, make(chan struct{})
	return w.robbed
}

// silence keeps what both sides say from now on, until speak.
func (w *wire) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet == nil {
		w.quiet = make(chan struct{})
	}
}

func (w *wire) speak() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet != nil {
		close(w.quiet)
		w.quiet = nil
	}
}

// cut ends all connections; new ones can be made.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}
