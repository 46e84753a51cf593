package servers

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Garbler stands between clients and a server and spoils answers, as a broken
// network card, a wrong port or a server gone mad would.
type Garbler struct {
	Port int
	addr string

	mu    sync.Mutex
	spoil Spoil
	done  int // number of answers spoilt in this way
}

// Garble listens on a port of its own and passes everything on to the server at
// addr, until the test ends.
func Garble(t testing.TB, addr string) *Garbler {
	t.Helper()
	return GarbleAt(t, "127.0.0.1:0", addr)
}

// GarbleAt is Garble with another address to listen on.
func GarbleAt(t testing.TB, listen, addr string) *Garbler {
	t.Helper()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	g := &Garbler{Port: l.Addr().(*net.TCPAddr).Port, addr: l.Addr().String()}
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		open[c] = true
	}
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", addr)
			if err != nil {
				c.Close()
				continue
			}
			keep(c)
			keep(s)
			all.Go(func() {
				defer s.Close()
				_, _ = io.Copy(s, c)
			})
			all.Go(func() {
				defer c.Close()
				defer s.Close()
				g.answers(c, s)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return g
}

// Addr returns host and port for clients.
func (g *Garbler) Addr() string { return g.addr }

// answers passes the server's answers on, until one ends the connection.
func (g *Garbler) answers(c, s net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if n > 0 {
			out, end := buf[:n], false
			g.mu.Lock()
			if g.spoil != nil {
				out, end = g.spoil(buf[:n])
				g.done++
			}
			g.mu.Unlock()
			if _, err := c.Write(out); err != nil || end {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Spoil spoils each answer from now on, and returns a function that ends that.
func (g *Garbler) Spoil(how Spoil) (heal func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spoil, g.done = how, 0
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.spoil = nil
	}
}

// spoils returns the number of answers spoilt in the present way.
func (g *Garbler) spoils() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done
}
