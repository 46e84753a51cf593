package zklock

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/internal/unanswered"
)

// A Tap observes a connection for what the client library does not report: when
// the connection was made, which time-out the server granted to the session,
// and all events in one place. It has to exist before the connection does:
//
//	tap := zklock.NewTap(nil)
//	conn, _, err := zk.Connect(servers, timeout, zk.WithDialer(tap.Dial), zk.WithEventCallback(tap.Event))
//	d, err := zklock.New(ctx, conn, tap, nil)
//
// A Tap serves one connection.
type Tap struct {
	dial    zk.Dialer
	givenUp unanswered.Requests // see Driver.do

	mu           sync.Mutex
	conn         net.Conn
	closed       bool
	dialed       time.Time // when dialling the present connection began
	fails        int
	lastErr      error
	timeout      time.Duration
	session      int64
	state        zk.State
	notify       func(zk.Event)
	silenceLimit func() time.Duration // see session.silenceLimit; nil for the client library's own limit
}

// NewTap returns a Tap that dials with dial, or with net.DialTimeout if dial is
// nil.
func NewTap(dial zk.Dialer) *Tap {
	if dial == nil {
		dial = net.DialTimeout
	}
	return &Tap{dial: dial}
}

// tlsLimit is the least time that a server has for dialling and handshake. The
// client library, which knows nothing of TLS, may allow less.
const tlsLimit = 3 * time.Second

// tlsDialer returns a dialer that uses TLS.
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
	if fails > 0 { // while there are servers left, the client library dials again at once
		time.Sleep(min(5*time.Millisecond<<min(fails, 6), 250*time.Millisecond))
	}
	begun := time.Now()
	conn, err := t.dial(network, address, timeout)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fails++ // until there is a session
	if err != nil {
		// A server that was reached and misbehaved explains more than one that
		// was not reached.
		if !notServing(t.lastErr) && t.lastErr != errForeign {
			t.lastErr = err
		}
		return nil, err
	}
	if t.closed {
		conn.Close()
		return nil, errCut
	}
	t.dialed = begun
	t.conn = &tapped{Conn: conn, tap: t, begun: begun}
	return t.conn, nil
}

// Event handles the connection's events; it is a zk.EventCallback.
func (t *Tap) Event(ev zk.Event) {
	t.mu.Lock()
	if ev.Type == zk.EventSession {
		t.state = ev.State
		if ev.State == zk.StateHasSession {
			t.fails, t.lastErr = 0, nil
		}
	}
	notify := t.notify
	t.mu.Unlock()
	if notify != nil {
		notify(ev)
	}
}

// listen passes all events from now on to to, and returns the state before
// them.
func (t *Tap) listen(notify func(zk.Event)) zk.State {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notify = notify
	return t.state
}

// setSilenceLimit makes the Tap give up connections that stay silent for the
// time that limit returns.
func (t *Tap) setSilenceLimit(limit func() time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silenceLimit = limit
}

func (t *Tap) limit() func() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.silenceLimit
}

// granted returns the session, its time-out, and a time surely before the
// request was sent that made or confirmed the session.
func (t *Tap) granted() (id int64, timeout time.Duration, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session, t.timeout, t.dialed
}

// trouble returns the reason why there is no session.
func (t *Tap) trouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastErr
}

// cut closes the connection and refuses any further one.
func (t *Tap) cut() {
	t.mu.Lock()
	conn := t.conn
	t.closed = true
	t.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// failed notes the reason why a handshake failed.
func (t *Tap) failed(err error) {
	t.mu.Lock()
	t.lastErr = err
	t.mu.Unlock()
}

// tapped is a connection that reads the server's first answer as it passes: the
// reply to the request for a session.
type tapped struct {
	net.Conn
	tap   *Tap
	first [20]byte // length, protocol, time-out, session
	n     int

	begun       time.Time    // when dialling began
	owesSince   atomic.Int64 // when the first unanswered bytes were written, after begun; 0 if all are answered
	deadline    time.Time    // the client library's read deadline; used by the reader alone
	endsSilence bool         // until is after the end of the allowed silence
}

var (
	errNoServe = errors.New("the server closes connections during the handshake: it does not serve now (no quorum?), expects TLS, or is no ZooKeeper")
	errMute    = errors.New("the server accepts connections and does not answer")
	errForeign = errors.New("the server is not a ZooKeeper")
)

// notServing reports whether an error is that of a server that makes no sessions now.
func notServing(err error) bool { return errors.Is(err, errNoServe) || errors.Is(err, errMute) }

// handshake is the time in which a server has to answer the request for a
// session. The client library would wait for several time-outs, although other
// servers may serve.
const handshake = 2 * time.Second

// SetReadDeadline implements net.Conn.
func (c *tapped) SetReadDeadline(t time.Time) error {
	c.deadline, c.endsSilence = t, false
	limit := time.Duration(0)
	if c.n < len(c.first) {
		limit = handshake
	} else if quiet := c.tap.limit(); quiet != nil && !t.IsZero() {
		limit = quiet()
	}
	if end := time.Now().Add(limit); limit > 0 && (t.IsZero() || t.After(end)) {
		t, c.endsSilence = end, c.n == len(c.first)
	}
	return c.Conn.SetReadDeadline(t)
}

// Write implements net.Conn.
func (c *tapped) Write(b []byte) (int, error) {
	if c.owesSince.Load() == 0 {
		c.owesSince.CompareAndSwap(0, max(1, int64(time.Since(c.begun))))
	}
	return c.Conn.Write(b)
}

// lastLook is the time for which the reader of a silent connection still reads
// before it gives the connection up. An answer may have arrived while this
// process got no processor to read it.
const lastLook = 20 * time.Millisecond

// readUnlessSilent reads for as long as the connection may stay silent. Silence counts from
// an unanswered request: a server with nothing to answer is not silent, nor is
// a server whose answer has arrived.
func (c *tapped) readUnlessSilent(b []byte) (n int, err error) {
	for looked := false; ; {
		n, err = c.Conn.Read(b)
		if n > 0 {
			c.owesSince.Store(0)
			c.tap.givenUp.Answer()
		}
		if !c.endsSilence || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		quiet := c.tap.limit()
		if quiet == nil || looked {
			return n, err
		}
		left := quiet()
		if asked := c.owesSince.Load(); asked != 0 {
			left -= time.Since(c.begun) - time.Duration(asked)
		}
		if left <= 0 {
			left, looked = lastLook, true
		}
		end := time.Now().Add(left)
		if end.After(c.deadline) {
			end, c.endsSilence = c.deadline, false
		}
		if err := c.Conn.SetReadDeadline(end); err != nil {
			return n, err
		}
	}
}

// Read implements net.Conn.
func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.readUnlessSilent(b)
	if c.n == len(c.first) {
		return n, err
	}
	c.n += copy(c.first[c.n:], b[:n])
	if c.n >= 4 {
		// The text of a foreign server would be taken for a length of
		// gigabytes.
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
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		c.tap.failed(errMute)
	} else if err != nil {
		c.tap.failed(errNoServe)
	}
	return n, err
}

// hosts is a zk.HostProvider that tries the servers in turn. It leaves names to
// the dialer, which resolves them again for each connection. The dialer also
// sets the pace: the client library would pause for a second after each round,
// so hosts reports the end of a round only when the library has to stop, which
// the library checks there.
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

// silent is a zk.Logger that drops all messages: errors reach the caller as
// errors.
type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}
