package redlock

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// A link is the way to a server, with a travel time in each direction. A link
// that is shut carries nothing, without an error.
type link struct {
	l    net.Listener
	to   string
	way  time.Duration
	gate gate
	end  chan struct{}
	done sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newLink(t testing.TB, s *servers.RedisServer, way time.Duration) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{l: l, to: s.Addr(), way: way, end: make(chan struct{})}
	k.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			k.done.Go(func() { k.connect(c) })
		}
	})
	t.Cleanup(func() {
		close(k.end)
		l.Close()
		k.mu.Lock()
		for _, c := range k.conns {
			c.Close()
		}
		k.mu.Unlock()
		k.done.Wait()
	})
	return k
}

func (k *link) url() string { return "redis://" + k.l.Addr().String() + "/0" }

func (k *link) connect(client net.Conn) {
	server, err := net.Dial("tcp", k.to)
	if err != nil {
		client.Close()
		return
	}
	k.mu.Lock()
	k.conns = append(k.conns, client, server)
	k.mu.Unlock()
	k.done.Go(func() { k.carry(server, client) })
	k.carry(client, server)
}

// carry passes the bytes on in order, each piece after the travel time.
func (k *link) carry(from, to net.Conn) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 256)
	k.done.Go(func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			k.gate.mu.Lock()
			open := k.gate.open
			k.gate.mu.Unlock()
			if open != nil {
				select {
				case <-open:
				case <-k.end:
				}
			}
			if _, err := to.Write(p.data); err != nil {
				from.Close()
			}
		}
	})
	defer close(pieces)
	for {
		buf := make([]byte, 4<<10)
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case pieces <- piece{buf[:n], time.Now().Add(k.way)}:
		case <-k.end:
			return
		}
	}
}
