package faultproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers each line with itself, and remembers it.
type server struct {
	l  net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	lines []string
}

func serve(t *testing.T) *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{l: l}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				defer c.Close()
				for r := bufio.NewScanner(c); r.Scan(); {
					s.mu.Lock()
					s.lines = append(s.lines, r.Text())
					s.mu.Unlock()
					fmt.Fprintln(c, r.Text())
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); s.wg.Wait() })
	return s
}

func (s *server) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, " ")
}

// client speaks in lines.
type client struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

// say sends a line and returns the answer.
func (c *client) say(line string, limit time.Duration) error {
	if _, err := fmt.Fprintln(c.c, line); err != nil {
		return err
	}
	if err := c.c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	answer, err := c.r.ReadString('\n')
	if err == nil && answer != line+"\n" {
		c.t.Errorf("%q is answered with %q", line, answer)
	}
	return err
}

const (
	long  = 30 * time.Second
	short = 50 * time.Millisecond
)

// TestArmedMessageIsCut: the message that was armed for is cut, no other, and as asked.
func TestArmedMessageIsCut(t *testing.T) {
	for _, when := range []faultproxy.When{faultproxy.Before, faultproxy.After} {
		for _, how := range []faultproxy.How{faultproxy.Close, faultproxy.Reset, faultproxy.Silence} {
			t.Run(fmt.Sprint(when, how), func(t *testing.T) {
				s := serve(t)
				p := faultproxy.Between(t, s.l.Addr().String())
				c := dial(t, p.Addr())
				p.Arm(2, when, how)
				if err := c.say("a", long); err != nil {
					t.Errorf("the first: %v", err)
				}
				limit := long
				if how == faultproxy.Silence {
					limit = short
				}
				err := c.say("b", limit)
				var timeout net.Error
				silent := errors.As(err, &timeout) && timeout.Timeout()
				if err == nil || silent != (how == faultproxy.Silence) || errors.Is(err, syscall.ECONNRESET) != (how == faultproxy.Reset) {
					t.Errorf("the second: %v", err)
				}
				if p.Disarm() {
					t.Error("the cut is still to come")
				}
				if err := c.say("c", long); err == nil {
					t.Error("the connection outlives its cut")
				}
				want := "a"
				if when == faultproxy.After {
					want = "a b"
				}
				if got := s.heard(); got != want {
					t.Errorf("the server heard %q, want %q", got, want)
				}
				if err := dial(t, p.Addr()).say("d", long); err != nil {
					t.Errorf("another connection: %v", err)
				}
			})
		}
	}
}

// TestSplitHoldsMessagesUntilHealed: nothing arrives until it is healed, then all does.
func TestSplitHoldsMessagesUntilHealed(t *testing.T) {
	for _, both := range []bool{true, false} {
		t.Run(fmt.Sprint(both), func(t *testing.T) {
			s := serve(t)
			p := faultproxy.Between(t, s.l.Addr().String())
			c := dial(t, p.Addr())
			if err := c.say("a", long); err != nil {
				t.Fatal(err)
			}
			p.Split(both)
			if err := c.say("b", short); err == nil {
				t.Error("an answer came through")
			}
			if both && s.heard() != "a" {
				t.Errorf("the server heard %q", s.heard())
			}
			p.Heal()
			if err := c.c.SetReadDeadline(time.Now().Add(long)); err != nil {
				t.Fatal(err)
			}
			if answer, err := c.r.ReadString('\n'); err != nil || answer != "b\n" {
				t.Errorf("after it: %q, %v", answer, err)
			}
			p.Cut(faultproxy.Close)
			if err := c.say("c", long); err == nil {
				t.Error("the connection was not cut")
			}
		})
	}
}
