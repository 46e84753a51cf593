package redislock

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// A tap carries connections to a server, and breaks one on demand.
type tap struct {
	l    net.Listener
	to   string
	done sync.WaitGroup

	mu    sync.Mutex
	armed *cut
	conns []net.Conn
}

// cut is the fate of the connection that carries a request: it ends, or falls
// silent, before the request or after the request was carried out.
type cut struct {
	script *wire.Script
	before bool
	end    func(net.Conn)
	met    chan struct{}
	late   chan struct{} // if not nil: the request arrives once it is closed, whatever became of the client
}

func newTap(t *testing.T, s *servers.RedisServer) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &tap{l: l, to: s.Addr()}
	w.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.done.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			c.Close()
		}
		w.mu.Unlock()
		w.done.Wait()
	})
	return w
}

func (w *tap) arm(c *cut) {
	c.met = make(chan struct{})
	w.mu.Lock()
	w.armed = c
	w.mu.Unlock()
}

func (w *tap) carry(client net.Conn) {
	server, err := net.Dial("tcp", w.to)
	if err != nil {
		client.Close()
		return
	}
	w.mu.Lock()
	w.conns = append(w.conns, client, server)
	w.mu.Unlock()
	var answers sync.Mutex // held for ever once answers are to be lost
	w.done.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				client.Close()
				return
			}
			answers.Lock()
			client.Write(buf[:n])
			answers.Unlock()
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			server.Close()
			return
		}
		w.mu.Lock()
		c := w.armed
		if c != nil && bytes.Contains(buf[:n], []byte(c.script.SHA)) {
			w.armed = nil
		} else {
			c = nil
		}
		w.mu.Unlock()
		if c == nil {
			server.Write(buf[:n])
			continue
		}
		if c.late != nil {
			close(c.met)
			<-c.late
			server.Write(buf[:n])
			continue
		}
		if !c.before {
			// Carry the request out on a connection of its own, and wait for
			// the answer.
			answers.Lock()
			if other, err := net.Dial("tcp", w.to); err == nil {
				other.Write(buf[:n])
				other.SetReadDeadline(time.Now().Add(patience))
				other.Read(make([]byte, 1))
				other.Close()
			}
			answers.Unlock()
		}
		close(c.met) // first: the caller looks as soon as it notices the end
		c.end(client)
		// Everything else that is sent there is lost.
		io.Copy(io.Discard, client)
		server.Close()
		return
	}
}

var ends = map[string]func(net.Conn){
	"close":   func(c net.Conn) { c.Close() },
	"reset":   func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() },
	"silence": func(net.Conn) {},
}

// TestF1_F2_F4_LostRequestIsUnknown checks that the outcome of a request which
// was lost, before or after the server carried it out, is unknown, and that a
// repetition finds the request done once, or not at all.
func TestF1_F2_F4_LostRequestIsUnknown(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	w := newTap(t, s)
	url := strings.Replace(s.URL("timeout=500ms"), s.Addr(), w.l.Addr().String(), 1)
	for how, end := range ends {
		for _, before := range []bool{false, true} {
			what := how + " after"
			if before {
				what = how + " before"
			}
			t.Run(what, func(t *testing.T) {
				s.Do(t, "FLUSHALL")
				d, err := Open(context.Background(), url)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				m, other := listen(t, d), enter(t, s, "")
				warm := m.ticket("warm")
				m.take(warm, driver.Held)
				m.leaves(warm, driver.Held)

				lost := func(script *wire.Script, call func(context.Context) error) {
					t.Helper()
					c := &cut{script: script, before: before, end: end}
					w.arm(c)
					for range 100 { // a connection may be found broken since an earlier request
						ctx, cancel := context.WithTimeout(m.ctx(), 300*time.Millisecond)
						err := call(ctx)
						ended := ctx.Err() != nil
						cancel()
						if ended && driver.ClassOf(err) == driver.NotDone {
							continue // the machine was too slow to send it
						}
						if driver.ClassOf(err) != driver.Unknown || err == nil {
							t.Fatalf("a lost request: %v", err)
						}
						select {
						case <-c.met:
							return
						default:
						}
					}
					t.Fatal("the request was never met")
				}
				again := func(what string, call func() (driver.State, error)) driver.State {
					t.Helper()
					var state driver.State
					eventually(t, what, func() bool {
						var err error
						state, err = call()
						return err == nil
					})
					return state
				}
				held := m.ticket("n")
				joins := 1
				if before {
					joins = 0
				}
				n := count(t, s, func() {
					lost(plainScripts.Join, func(ctx context.Context) error { _, err := m.Join(ctx, held, true); return err })
				})
				if n.evalsha != joins {
					t.Errorf("a join that was lost was carried out %d times, want %d", n.evalsha, joins)
				}
				token, _ := s.Do(t, "GET", keysOf("n")[wire.KeyMark]).(string)
				var p driver.Status
				if again("the join is asked again", func() (driver.State, error) {
					var err error
					p, err = m.Join(m.ctx(), held, true)
					return p.State, err
				}) != driver.Held {
					t.Fatalf("asked again, the ticket is %v", p.State)
				}
				if now := s.Do(t, "GET", keysOf("n")[wire.KeyMark]); !before && now != token {
					t.Errorf("asked again, the token went from %v to %v", token, now)
				}
				next := other.ticket("n")
				other.take(next, driver.Waiting)
				lost(plainScripts.Leave, func(ctx context.Context) error {
					return first(m.Leave(ctx, []driver.Ref{ref(held)}))
				})
				want := driver.Gone
				if before {
					want = driver.Held
				}
				if got := again("the leave is asked again", func() (driver.State, error) {
					ps, err := m.Leave(m.ctx(), []driver.Ref{ref(held)})
					if err == nil {
						err = ps[0].Err
					}
					return ps[0].State, err
				}); got != want {
					t.Errorf("asked again, the ticket that left was %v, want %v", got, want)
				}
				other.granted(next)
				other.keeps(next, driver.Held)
				other.leaves(next, driver.Held)
			})
		}
	}
}
