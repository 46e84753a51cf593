package sentinel

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/rueidisclient"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// fakeSentinel answers on a port of its own. It greets no client before greet
// gives it leave to.
type fakeSentinel struct {
	addr   string
	hello  chan struct{} // receives a value for each client that waits for its greeting
	greet  chan struct{} // closed to greet all clients
	closed chan struct{} // receives a value for each connection that its client closed
}

func newFakeSentinel(t *testing.T) *fakeSentinel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSentinel{addr: l.Addr().String(), hello: make(chan struct{}, 16), greet: make(chan struct{}), closed: make(chan struct{}, 16)}
	ended := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *fakeSentinel) serve(c net.Conn) {
	defer func() { c.Close(); f.closed <- struct{}{} }()
	r := bufio.NewReader(c)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "+OK\r\n"
		switch args[0] {
		case "HELLO":
			f.hello <- struct{}{}
			<-f.greet
			answer = "%2\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n"
		case "SUBSCRIBE":
			answer = ">3\r\n+subscribe\r\n+" + switchChannel + "\r\n:1\r\n"
		case "SENTINEL":
			answer = "*2\r\n+192.0.2.1\r\n+6379\r\n"
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// readCommand reads an array of bulk strings.
func readCommand(r *bufio.Reader) (args []string, err error) {
	number := func() (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	for range n {
		size, err := number()
		if err != nil {
			return nil, err
		}
		arg := make([]byte, size+2)
		if _, err := io.ReadFull(r, arg); err != nil {
			return nil, err
		}
		args = append(args, strings.ToUpper(string(arg[:size])))
	}
	return args, err
}

// sentinelsAt returns the Sentinels of a driver that has no primary.
func sentinelsAt(t *testing.T, addr string) *sentinelSet {
	t.Helper()
	p := newPrimary(Config{Hosts: []string{addr}, Master: "main", Dial: func(_ context.Context, host string) (*server.Driver, error) {
		life, end := context.WithCancel(context.Background())
		l, err := rueidisclient.Dial(life, end, rueidisclient.Options{Addr: host, DialTimeout: time.Minute, Timeout: time.Minute})
		if err != nil {
			end()
			return nil, err
		}
		return server.Unchecked(server.Setup{Lib: l, Replaceable: true}), nil
	}})
	t.Cleanup(p.Close)
	return &p.sentinels
}

// TestSecondSentinelDriverIsTheOneClosed checks that, of two drivers that
// connect to one Sentinel at once, the second is closed and the first goes on.
func TestSecondSentinelDriverIsTheOneClosed(t *testing.T) {
	f := newFakeSentinel(t)
	g := sentinelsAt(t, f.addr)
	drivers := make(chan *server.Driver, 2)
	for range cap(drivers) {
		go func() {
			d, err := g.driver(t.Context(), f.addr)
			if err != nil {
				t.Error(err)
			}
			drivers <- d
		}()
	}
	for range cap(drivers) {
		<-f.hello
	}
	close(f.greet)
	kept, same := <-drivers, <-drivers
	<-f.closed
	if kept == nil || kept != same {
		t.Fatal("two drivers of one Sentinel are in use")
	}
	if addr, err := g.ask(t.Context(), f.addr); kept.Over() || err != nil || addr != "192.0.2.1:6379" {
		t.Errorf("the driver that was kept is closed: %v; it answers %q, %v", kept.Over(), addr, err)
	}
}

// TestSentinelDriverAfterCloseIsClosed checks that a driver that is connected
// when the others have been closed is closed too.
func TestSentinelDriverAfterCloseIsClosed(t *testing.T) {
	f := newFakeSentinel(t)
	g := sentinelsAt(t, f.addr)
	failed := make(chan error, 1)
	go func() {
		_, err := g.driver(t.Context(), f.addr)
		failed <- err
	}()
	<-f.hello
	g.close()
	close(f.greet)
	if err := <-failed; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("the driver of a Sentinel after Close: %v", err)
	}
	<-f.closed
}

// TestPrimaryIsSoughtUntilFound checks that a client that sends nothing, because it
// only waits, finds a primary to which the first connections failed.
func TestPrimaryIsSoughtUntilFound(t *testing.T) {
	f := newFakeSentinel(t)
	close(f.greet)
	g := sentinelsAt(t, f.addr)
	found, failures := make(chan string, 1), 2
	g.p.Connect = func(ctx context.Context, addr string) (*server.Driver, error) {
		if failures--; failures >= 0 {
			return nil, driver.Errorf(driver.Unavailable, "refused")
		}
		found <- addr
		return g.p.Dial(ctx, f.addr)
	}
	g.p.Life.Begin(g.follow)
	select {
	case <-found:
	case <-time.After(time.Minute):
		t.Error("the primary was sought once")
	}
}
