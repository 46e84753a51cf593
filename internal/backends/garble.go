package backends

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Garbler stands between clients and a server and spoils answers, as a broken
// network card, a wrong port or a server gone mad would.
type Garbler struct {
	Port int

	mu    sync.Mutex
	spoil func(answer []byte) (instead []byte, end bool)
	done  int
}

// Garble listens on a port of its own and passes everything on to the server at
// addr, until the test ends.
func Garble(t testing.TB, addr string) *Garbler {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Garbler{Port: l.Addr().(*net.TCPAddr).Port}
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
func (g *Garbler) Addr() string { return fmt.Sprintf("127.0.0.1:%d", g.Port) }

// answers passes what the server says, until it is spoilt for good.
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

// garbled are the ways to spoil an answer: the name, what is sent instead, and
// whether the connection ends with it.
var garbled = map[string]func(answer []byte) (instead []byte, end bool){
	"half of it": func(a []byte) ([]byte, bool) { return a[:len(a)/2], true },
	"bits flipped": func(a []byte) ([]byte, bool) {
		b := bytes.Clone(a)
		for i := range b {
			b[i] ^= 0x55
		}
		return b, false
	},
	"another protocol": func([]byte) ([]byte, bool) { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), true },
	"a huge length": func([]byte) ([]byte, bool) {
		return []byte("$9223372036854775807\r\n\xff\xff\xff\xff\xff\xff\xff\x7f"), true
	},
	"nothing but zeros": func(a []byte) ([]byte, bool) { return make([]byte, max(len(a), 64)), true },
}

// spoilt spoils each answer from now on, and returns what ends that and tells how
// many were.
func (g *Garbler) spoilt(how func(answer []byte) (instead []byte, end bool)) (heal func() int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spoil, g.done = how, 0
	return func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.spoil = nil
		return g.done
	}
}

// GarbledAnswers checks a driver whose connections go through g, beside one that
// reaches the store directly: an answer that cannot be understood is an error
// that promises nothing and refuses nothing, it ends no hold and is nobody else's
// answer, and with the next right one all goes on. Ways to spoil it that are named
// in except are left out.
func GarbledAnswers(t *testing.T, g *Garbler, d, direct driver.Driver, except ...string) {
	var id [16]byte
	_, _ = rand.Read(id[:])
	n := 0
	ticket := func() *driver.Ticket {
		n++
		return &driver.Ticket{
			ID:   fmt.Sprintf("%x-%x-%x-%x-%x:%d", id[:4], id[4:6], id[6:8], id[8:10], id[10:], n),
			Name: fmt.Sprintf("garbled/%x/%d", id, n), Units: 1, Limit: 1, TTL: 30 * time.Second,
		}
	}
	renew := func(tk *driver.Ticket, limit time.Duration) (driver.Place, error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		ps, err := d.Renew(ctx, []driver.Ref{{Ticket: tk, State: driver.Held}})
		if err != nil {
			return driver.Place{}, err
		}
		return ps[0], ps[0].Err
	}
	join := func(tk *driver.Ticket, limit time.Duration) (driver.Place, error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return d.Join(ctx, tk, true)
	}
	held := ticket()
	p, err := join(held, time.Minute)
	if err != nil || p.State != driver.Held {
		t.Fatalf("Join: %+v, %v", p, err)
	}
	token := p.Token
	for name, how := range garbled {
		if slices.Contains(except, name) {
			continue
		}
		other := ticket()
		heal := g.spoilt(how)
		for what, ask := range map[string]func(*driver.Ticket, time.Duration) (driver.Place, error){"Renew": renew, "Join": join} {
			tk := held
			if what == "Join" {
				tk = other
			}
			switch p, err := ask(tk, 100*time.Millisecond); {
			case err != nil && driver.ClassOf(err) == driver.Refused:
				t.Errorf("%s: %s takes it for a refusal: %v", name, what, err)
			case err == nil && p.State != driver.Held:
				t.Errorf("%s: %s takes it for %v", name, what, p.State)
			}
		}
		if heal() == 0 {
			t.Errorf("%s: nothing was spoilt", name)
		}
		eventually := func(what string, ask func(*driver.Ticket, time.Duration) (driver.Place, error), tk *driver.Ticket) driver.Place {
			for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
				p, err := ask(tk, 5*time.Second)
				if err == nil {
					return p
				}
				if time.Since(begun) > 30*time.Second {
					t.Fatalf("%s: %s, long afterwards: %v", name, what, err)
				}
			}
		}
		if p := eventually("Renew", renew, held); p.State != driver.Held || p.Token != token {
			t.Errorf("%s: afterwards the hold is %v with token %d, which was %d", name, p.State, p.Token, token)
		}
		if p := eventually("Join", join, other); p.State != driver.Held || p.Token == 0 {
			t.Errorf("%s: afterwards the other ticket is %v with token %d", name, p.State, p.Token)
		}
		l, err := direct.Inspect(t.Context(), other.Name)
		if err != nil || len(l.Tickets) != 1 || l.Tickets[0].ID != other.ID {
			t.Errorf("%s: the store has %+v of it, %v", name, l.Tickets, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if ps, err := d.Leave(ctx, []driver.Ref{{Ticket: other, State: driver.Held}}); err != nil || ps[0].Err != nil || ps[0].State != driver.Held {
			t.Errorf("%s: Leave: %+v, %v", name, ps, err)
		}
		cancel()
	}
}
