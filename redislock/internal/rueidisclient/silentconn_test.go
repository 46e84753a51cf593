package rueidisclient

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
)

// TestF115_DoubtedConnection doubts a connection that has owed an answer for a minute: it
// is closed only if the server answers on another one, and only if it is shared. A question
// that decides nothing is not asked again at once.
func TestF115_DoubtedConnection(t *testing.T) {
	for _, x := range []struct {
		what, answer string
		dedicated    bool
		closed       bool
		asked        int
	}{
		{"the server answers", "+PONG\r\n", false, true, 1},
		{"the server wants a password", "-NOAUTH Authentication required.\r\n", false, true, 1},
		{"the server is busy", "-BUSY Redis is busy running a script.\r\n", false, false, 1},
		{"the server is silent", "", false, false, 1},
		{"the connection waits for replicas", "+PONG\r\n", true, false, 0},
	} {
		t.Run(x.what, func(t *testing.T) {
			m, server := silentConn(t)
			m.dedicated = x.dedicated
			var running sync.WaitGroup
			asked, a := 0, m.loneCall
			a.doubt.over = t.Context()
			a.doubt.life.Store(&client.Life{Begin: func(f func()) bool { running.Go(f); return true }})
			a.doubt.dial = func(context.Context) (net.Conn, error) {
				asked++
				here, there := net.Pipe()
				running.Go(func() {
					defer there.Close()
					_, _ = io.ReadFull(there, make([]byte, len("PING\r\n")))
					_, _ = io.WriteString(there, x.answer)
				})
				return here, nil
			}
			for range 3 {
				a.look()
				running.Wait()
				if x.closed {
					break
				}
			}
			late := time.AfterFunc(10*client.LastLook, func() { _, _ = server.Write([]byte("+")) })
			defer late.Stop()
			_, err := m.Read(make([]byte, 1))
			if closed := errors.Is(err, net.ErrClosed); closed != x.closed || asked != x.asked {
				t.Errorf("closed %v (%v), asked %d times", closed, err, asked)
			}
		})
	}
}

// TestDoubtsEnd closes one connection after the other, as behind a proxy that answers for a
// server that is slow: after three, the next one has time.
func TestDoubtsEnd(t *testing.T) {
	asked, a := 0, new(loneCall)
	a.doubt.over = t.Context()
	a.doubt.life.Store(&client.Life{Begin: func(f func()) bool { f(); return true }})
	a.doubt.dial = func(context.Context) (net.Conn, error) {
		asked++
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			_, _ = io.ReadFull(there, make([]byte, len("PING\r\n")))
			_, _ = io.WriteString(there, "+PONG\r\n")
		}()
		return here, nil
	}
	for range 5 {
		m, _ := silentConn(t)
		m.loneCall = a
		a.add(m)
		a.look()
		a.remove(m)
	}
	if asked != mostDoubts {
		t.Errorf("asked %d times", asked)
	}
}

// TestQuestionEndsWithTheDriver ends the connections of a driver that asks a silent server:
// the question, for which the driver's Close waits, ends too.
func TestQuestionEndsWithTheDriver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	life, end := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, end)
	d := doubt{over: life, dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}}
	begun := time.Now()
	if answered := d.answers(); answered || time.Since(begun) > doubtLimit/2 {
		t.Errorf("answered %v after %v", answered, time.Since(begun))
	}
}
