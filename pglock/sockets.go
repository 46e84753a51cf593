package pglock

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// closeTime is the time in which connections may close as the protocol has it: one that
// is idle says that it ends, and one whose request was given up asks the server to cancel
// the request. After that Close cuts them.
const closeTime = 200 * time.Millisecond

// cancelTime bounds the request to cancel that the client library sends for a request that
// was given up, on a connection of its own, and after it the wait for the server to close
// the first one. The library's own bound is 15 s, for which a silent server would keep a
// place in the pool and a goroutine each.
const cancelTime = time.Second

// sockets are the network connections that a driver has opened itself, so that Close can
// cut them. The client library has goroutines of its own for a connection that it has given
// up. Close of a pool waits for them, and nobody does for a connection without a pool.
type sockets struct {
	connecting context.Context // of attempts to connect; ends with the cut
	stop       context.CancelFunc

	mu    sync.Mutex
	cut   bool
	open  map[*socket]struct{}
	inUse sync.WaitGroup // attempts to connect, and sockets that the library has not closed
}

func newSockets() *sockets {
	s := &sockets{open: make(map[*socket]struct{})}
	s.connecting, s.stop = context.WithCancel(context.Background())
	return s
}

// socket is a network connection.
type socket struct {
	net.Conn
	of     *sockets
	once   sync.Once
	closed chan struct{} // by its user
}

// trackPool makes the connections of a pool open their network connections through s.
func (s *sockets) trackPool(config *pgxpool.Config) {
	before := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		s.track(c)
		return nil
	}
}

// track makes one connection open its network connections through s.
func (s *sockets) track(config *pgx.ConnConfig) { config.DialFunc = s.dialer(config.DialFunc) }

// dialer returns a function that opens the network connections of one connection to the
// database: at first the attempts to connect, one after the other, and, while the one that
// succeeded is open, those of requests to cancel.
func (s *sockets) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	var mu sync.Mutex
	var last *socket
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		cancels := last != nil && last.isOpen()
		mu.Unlock()
		if cancels {
			var end context.CancelFunc
			ctx, end = context.WithTimeout(ctx, cancelTime)
			defer end()
		}
		c, err := s.dial(ctx, dial, network, address)
		if err != nil {
			return nil, err
		}
		if cancels {
			_ = c.Conn.SetDeadline(time.Now().Add(cancelTime))
			return c, nil
		}
		mu.Lock()
		last = c
		mu.Unlock()
		return c, nil
	}
}

// dial opens a network connection, unless s is cut.
func (s *sockets) dial(ctx context.Context, dial pgconn.DialFunc, network, address string) (*socket, error) {
	s.mu.Lock()
	if s.cut {
		s.mu.Unlock()
		return nil, net.ErrClosed
	}
	s.inUse.Add(1)
	s.mu.Unlock()

	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	defer context.AfterFunc(s.connecting, giveUp)()
	conn, err := dial(ctx, network, address)
	if err != nil {
		s.inUse.Done()
		return nil, err
	}
	c := &socket{Conn: conn, of: s, closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		s.inUse.Done()
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	s.open[c] = struct{}{}
	return c, nil
}

func (c *socket) isOpen() bool {
	select {
	case <-c.closed:
		return false
	default:
		return true
	}
}

// SetDeadline implements [net.Conn]. The client library sets a deadline in the future only
// when it has given the connection up, for the server's end.
func (c *socket) SetDeadline(t time.Time) error {
	if latest := time.Now().Add(cancelTime); t.After(latest) {
		t = latest
	}
	return c.Conn.SetDeadline(t)
}

// Close implements [net.Conn].
func (c *socket) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		close(c.closed)
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
		c.of.inUse.Done()
	})
	return err
}

// cutAll closes all network connections under their users, and lets no more be opened.
func (s *sockets) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
	s.stop()
	for c := range s.open {
		_ = c.Conn.Close()
	}
}

// close cuts all network connections, and waits until the client library has closed each.
func (s *sockets) close() {
	s.cutAll()
	s.inUse.Wait()
}
