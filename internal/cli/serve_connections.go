//go:build unix

package cli

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/holdfast-go/holdfast/lockserver/lockauth"
)

// connections bounds how many connections are open. At the bound, a new connection
// takes the place of the one that is idle for longest, those of strangers first; if
// none is idle, it is closed.
type connections struct {
	bound int

	mu        sync.Mutex
	all       map[net.Conn]*connection
	strangers *list.List // idle ones, the oldest first, on which nobody was identified
	known     *list.List // other idle ones
}

// connection is an open connection. connections.mu guards it.
type connection struct {
	conn   net.Conn
	known  bool          // somebody was identified on it
	idleAt *list.Element // nil while it serves a request
}

func newConnections(bound int) *connections {
	return &connections{bound: bound, all: make(map[net.Conn]*connection), strangers: list.New(), known: list.New()}
}

type connectionKey struct{}

// begin is an http.Server.ConnContext: it notes the connection, and who is at its
// other end, for the requests.
func (c *connections) begin(ctx context.Context, conn net.Conn) context.Context {
	k := &connection{conn: conn}
	c.add(k)
	ctx = context.WithValue(ctx, connectionKey{}, k)
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ctx // no peer: the request has no credentials
	}
	uid, failed := uint32(0), error(nil)
	if err := raw.Control(func(fd uintptr) { uid, failed = peerUser(int(fd)) }); err != nil || failed != nil {
		return ctx
	}
	return lockauth.WithUnixPeer(ctx, uid)
}

// add adds a new connection, and closes one if there are too many.
func (c *connections) add(k *connection) {
	c.mu.Lock()
	var last *connection
	if len(c.all) >= c.bound {
		last = k
		for _, idle := range []*list.List{c.strangers, c.known} {
			if first := idle.Front(); first != nil {
				last = first.Value.(*connection)
				break
			}
		}
		c.removeLocked(last)
	}
	if last != k {
		c.all[k.conn] = k
		k.idleAt = c.strangers.PushBack(k)
	}
	c.mu.Unlock()
	if last != nil {
		closeAtOnce(last.conn)
	}
}

// closeAtOnce closes a connection without a farewell, for which TLS could wait.
func closeAtOnce(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	_ = conn.Close()
}

func (c *connections) removeLocked(k *connection) {
	c.busyLocked(k)
	delete(c.all, k.conn)
}

// busyLocked takes a connection from the list of idle ones.
func (c *connections) busyLocked(k *connection) {
	switch {
	case k.idleAt == nil:
		return
	case k.known:
		c.known.Remove(k.idleAt)
	default:
		c.strangers.Remove(k.idleAt)
	}
	k.idleAt = nil
}

// change is an http.Server.ConnState.
func (c *connections) change(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.all[conn]
	if k == nil {
		return
	}
	switch state {
	case http.StateActive:
		c.busyLocked(k)
	case http.StateIdle:
		if k.idleAt == nil {
			idle := c.strangers
			if k.known {
				idle = c.known
			}
			k.idleAt = idle.PushBack(k)
		}
	case http.StateClosed, http.StateHijacked:
		c.removeLocked(k)
	}
}

// identified notes that somebody was identified on the connection of a request.
func (c *connections) identified(ctx context.Context) {
	k, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !k.known {
		c.busyLocked(k) // of HTTP/2: the connection serves a request
		k.known = true
	}
}
