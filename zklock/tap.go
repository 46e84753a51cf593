package zklock

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// A Tap sees what the client library does not tell of a connection: when it is
// made, what time-out the server granted to the session, and all events in one
// place. It has to be there before the connection is:
//
//	tap := zklock.NewTap(nil)
//	conn, _, err := zk.Connect(servers, timeout, zk.WithDialer(tap.Dial), zk.WithEventCallback(tap.Event))
//	d, err := zklock.New(ctx, conn, tap, nil)
//
// A Tap serves one connection.
type Tap struct {
	dial zk.Dialer

	mu      sync.Mutex
	conn    net.Conn
	closed  bool
	dialed  time.Time // when the connection in use was begun
	fails   int
	lastErr error
	timeout time.Duration
	session int64
	state   zk.State
	to      func(zk.Event)
}

// NewTap returns a Tap that dials with dial, or with net.DialTimeout when that
// is nil.
func NewTap(dial zk.Dialer) *Tap {
	if dial == nil {
		dial = net.DialTimeout
	}
	return &Tap{dial: dial}
}

// tlsLimit is how long a server may take for dialling and handshake, where the
// library, which knows nothing of TLS, allows less.
const tlsLimit = 3 * time.Second

// tlsDialer dials with TLS.
func tlsDialer(config *tls.Config) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), max(timeout, tlsLimit))
		defer cancel()
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: timeout}, Config: config}
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return conn, nil
		}
		if _, unreached := errors.AsType[*net.OpError](err); !unreached {
			err = fmt.Errorf("the TLS handshake fails: %w", err)
		}
		return nil, err
	}
}

var errCut = errors.New("connection is closed for good")

// Dial implements zk.Dialer.
func (t *Tap) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	t.mu.Lock()
	closed, fails := t.closed, t.fails
	t.mu.Unlock()
	if closed {
		return nil, errCut
	}
	if fails > 0 { // the library asks again at once, as long as there are servers
		time.Sleep(min(5*time.Millisecond<<min(fails, 6), 250*time.Millisecond))
	}
	begun := time.Now()
	conn, err := t.dial(network, address, timeout)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fails++ // until a session proves the server right
	if err != nil {
		// What a server did that could be reached says more.
		if t.lastErr != errNoServe && t.lastErr != errForeign {
			t.lastErr = err
		}
		return nil, err
	}
	if t.closed {
		conn.Close()
		return nil, errCut
	}
	t.dialed = begun
	t.conn = &tapped{Conn: conn, tap: t}
	return t.conn, nil
}

// Event takes the connection's events; it is a zk.EventCallback.
func (t *Tap) Event(ev zk.Event) {
	t.mu.Lock()
	if ev.Type == zk.EventSession {
		t.state = ev.State
		if ev.State == zk.StateHasSession {
			t.fails, t.lastErr = 0, nil
		}
	}
	to := t.to
	t.mu.Unlock()
	if to != nil {
		to(ev)
	}
}

// listen hands on all events from now, and returns the state before them.
func (t *Tap) listen(to func(zk.Event)) zk.State {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.to = to
	return t.state
}

// granted is the session, its time-out, and a time at which the request that
// made or confirmed it was surely not yet sent.
func (t *Tap) granted() (id int64, timeout time.Duration, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session, t.timeout, t.dialed
}

// trouble is why there is no session.
func (t *Tap) trouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastErr
}

// cut ends the connection, and lets none be made any more.
func (t *Tap) cut() {
	t.mu.Lock()
	conn := t.conn
	t.closed = true
	t.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// failed notes why a handshake failed.
func (t *Tap) failed(err error) {
	t.mu.Lock()
	t.lastErr = err
	t.mu.Unlock()
}

// tapped is a connection whose first answer is read along: the server's reply
// to the request for a session.
type tapped struct {
	net.Conn
	tap   *Tap
	first [20]byte // length, protocol, time-out, session
	n     int
}

var (
	errNoServe = errors.New("the server closes connections during the handshake: it does not serve now (no quorum?), expects TLS, or is no ZooKeeper")
	errForeign = errors.New("what answers is not ZooKeeper")
)

// handshake is how long a server may take to answer the request for a session.
// The library would wait for several time-outs, while other servers may serve.
const handshake = 2 * time.Second

// SetReadDeadline implements net.Conn.
func (c *tapped) SetReadDeadline(t time.Time) error {
	if c.n < len(c.first) {
		if limit := time.Now().Add(handshake); t.IsZero() || t.After(limit) {
			t = limit
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.n == len(c.first) {
		return n, err
	}
	c.n += copy(c.first[c.n:], b[:n])
	if c.n >= 4 {
		// A foreign server's text would be taken for a length of gigabytes.
		if size := binary.BigEndian.Uint32(c.first[:]); size < 36 || size > 64 {
			c.tap.failed(errForeign)
			return 0, errForeign
		}
	}
	if c.n == len(c.first) {
		c.tap.mu.Lock()
		c.tap.timeout = time.Duration(binary.BigEndian.Uint32(c.first[8:])) * time.Millisecond
		c.tap.session = int64(binary.BigEndian.Uint64(c.first[12:]))
		c.tap.mu.Unlock()
	} else if err != nil {
		c.tap.failed(errNoServe)
	}
	return n, err
}

// hosts is a zk.HostProvider that leaves names to the dialer, which looks them
// up again for each connection, and that tries the servers in turn. The dialer
// paces that; the library, which would pause for a second after each round, is
// told of the end of a round only when it has to stop: it looks for that there.
type hosts struct {
	tap     *Tap
	servers []string
	next    int
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider.
func (h *hosts) Next() (server string, retryStart bool) {
	server = h.servers[h.next%len(h.servers)]
	h.next++
	h.tap.mu.Lock()
	defer h.tap.mu.Unlock()
	return server, h.tap.closed
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {}

// silent is a zk.Logger: errors reach the caller as errors.
type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}
