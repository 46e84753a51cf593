package etcdlock

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// trackedConns are the connections of a client that the driver has opened itself. A
// firewall that has forgotten a connection leaves it open and silent, although
// new ones can be made. gRPC notices after 15 s, which short leases do not
// outlast. So the driver closes a connection on which no answer has come for
// too long, and gRPC makes another one.
type trackedConns struct {
	begun time.Time

	mu   sync.Mutex // none is taken under it
	live map[*trackedConn]struct{}
}

// trackedConn is one connection.
type trackedConn struct {
	net.Conn
	conns     *trackedConns
	owesSince atomic.Int64 // when the first unanswered bytes were sent, counted from begun; 0 for none
	suspected atomic.Bool  // given up, unless an answer has arrived
}

// lastLookTime bounds how long the reader of a connection that is given up looks
// for an answer that arrived while this process got no processor to read it.
const lastLookTime = 20 * time.Millisecond

func newTrackedConns() *trackedConns {
	return &trackedConns{begun: time.Now(), live: make(map[*trackedConn]struct{})}
}

// closeSilent ends the connections that have been silent for that long. Their
// deadline for reading is over at once. Their readers look for data once more,
// and gRPC closes the connections that have none. It reports whether there were any.
func (ws *trackedConns) closeSilent(silent time.Duration) (some bool) {
	if ws == nil { // a client and connections of the user's own
		return false
	}
	now := time.Now()
	age := now.Sub(ws.begun)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.live {
		if since := w.owesSince.Load(); since != 0 && age-time.Duration(since) >= silent {
			w.suspected.Store(true)
			_ = w.SetReadDeadline(now)
			some = true
		}
	}
	return some
}

// Read implements [net.Conn].
func (w *trackedConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && w.suspected.Load() {
		n, err = w.lastLook(b)
	}
	if n > 0 {
		w.owesSince.Store(0)
	}
	return n, err
}

// lastLook reads data that has arrived on a connection that was given up, and keeps
// the connection if there is any.
func (w *trackedConn) lastLook(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(lastLookTime)); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.suspected.Store(false)
		_ = w.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Write implements [net.Conn].
func (w *trackedConn) Write(b []byte) (int, error) {
	if w.owesSince.Load() == 0 {
		w.owesSince.CompareAndSwap(0, int64(time.Since(w.conns.begun)))
	}
	return w.Conn.Write(b)
}

// Close implements [net.Conn].
func (w *trackedConn) Close() error {
	w.conns.mu.Lock()
	delete(w.conns.live, w)
	w.conns.mu.Unlock()
	return w.Conn.Close()
}

// trackingCreds are credentials that record their connections in trackedConns. gRPC
// passes them every connection, however it was dialled, through a proxy for
// instance.
type trackingCreds struct {
	credentials.TransportCredentials
	conns *trackedConns
}

// ClientHandshake implements [credentials.TransportCredentials].
func (c trackingCreds) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	w := &trackedConn{Conn: raw, conns: c.conns}
	c.conns.mu.Lock()
	c.conns.live[w] = struct{}{}
	c.conns.mu.Unlock()
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, w)
	if err != nil {
		_ = w.Close()
	}
	return conn, info, err
}

// Clone implements [credentials.TransportCredentials].
func (c trackingCreds) Clone() credentials.TransportCredentials {
	return trackingCreds{c.TransportCredentials.Clone(), c.conns}
}
