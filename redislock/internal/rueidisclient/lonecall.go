package rueidisclient

import (
	"context"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
)

// loneCall watches the context of a request that is under way by itself, on
// connections that the driver has made.
//
// A connection of rueidis that has one caller reads the answer in the caller's
// own goroutine. This is fast, but no context can interrupt the read. So the
// connection looks after the context itself, whenever an answer takes longer
// than client.PollEvery. Giving up costs the connection. After a server was found slow,
// or a new connection was made, requests therefore go by way of senders for a
// while: there, giving up costs nothing, and the delay of the detour is small
// against the server's.
//
// No mutex is taken under mu.
type loneCall struct {
	ownConns bool // the connections are the driver's own, and look after the context
	slow     atomic.Int32
	underWay atomic.Int32 // requests that their callers send
	doubt    doubt
	// dedicating counts the connections being opened that are not shared.
	dedicating atomic.Int32

	mu    sync.Mutex
	ctx   context.Context         // nil when no request is under way alone
	conns map[*boundConn]struct{} // the open ones
}

// detours is the number of requests that go by way of senders after a slow
// one.
const detours = 64

// noteSlow notes that the server was slow, or that a connection broke or was
// made.
func (a *loneCall) noteSlow() { a.slow.Store(detours) }

// detour reports whether a request is to go by way of a sender.
func (a *loneCall) detour() bool {
	if a.slow.Load() <= 0 {
		return false
	}
	a.slow.Add(-1)
	return true
}

// begin notes the context of a request.
func (a *loneCall) begin(ctx context.Context) {
	a.mu.Lock()
	a.ctx = ctx
	a.mu.Unlock()
}

func (a *loneCall) end() {
	a.mu.Lock()
	a.ctx = nil
	a.mu.Unlock()
}

// add registers an open connection.
func (a *loneCall) add(m *boundConn) *boundConn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conns == nil {
		a.conns = make(map[*boundConn]struct{})
	}
	a.conns[m] = struct{}{}
	return m
}

func (a *loneCall) remove(m *boundConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, m)
}

// closeSilent ends the connections that have owed an answer for too long. It is
// called after a call that had the time limit gave up. Their deadline for
// reading is over at once; their readers look for an answer once more, and close
// those that have none. The next requests open other connections.
func (a *loneCall) closeSilent(limit time.Duration) {
	var dead []*boundConn
	a.mu.Lock()
	for m := range a.conns {
		if since := m.owesSince.Load(); since != 0 && client.Overdue(time.Since(epoch)-time.Duration(since), limit) {
			dead = append(dead, m)
		}
	}
	a.mu.Unlock()
	for _, m := range dead {
		m.suspect()
	}
}

// suspect lets the reader look for an answer once more, and then close the connection.
func (m *boundConn) suspect() {
	m.suspected.Store(true)
	_ = m.Conn.SetReadDeadline(time.Now())
}

func (a *loneCall) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ctx
}

// boundConn is a connection that ends with the driver, and with the context of
// a lone request on it.
//
// No mutex is taken under mu.
type boundConn struct {
	net.Conn
	stop      func() bool // detaches the connection from the driver's life
	loneCall  *loneCall
	dedicated bool // not shared: a command may keep it waiting while others are answered

	mu    sync.Mutex
	limit time.Time // deadline of a single caller's request; zero when there are many callers

	greeting string // the server's first bytes, as long as nothing followed

	owesSince atomic.Int64 // the time since epoch at which it began to owe an answer; 0 if it owes none
	suspected atomic.Bool  // silent for too long: to be closed, unless an answer has arrived
}

// epoch is an instant before every other that the driver notes.
var epoch = time.Now().Add(-1)

// Write implements net.Conn.
func (m *boundConn) Write(b []byte) (int, error) {
	if m.owesSince.Load() == 0 {
		m.owesSince.Store(int64(time.Since(epoch)))
	}
	if m.loneCall.underWay.Load() > yieldFrom && m.callLimit().IsZero() {
		runtime.Gosched()
	}
	return m.Conn.Write(b)
}

// yieldFrom is the number of requests under way at once beyond which the goroutine that
// writes them lets others run first: their requests come with its next write, so
// that fewer writes carry more requests each.
const yieldFrom = 4

// Close implements net.Conn.
func (m *boundConn) Close() error {
	m.stop()
	m.loneCall.remove(m)
	return m.Conn.Close()
}

// SetDeadline implements net.Conn. The client sets a deadline for each request
// of a single caller, and none once there are many callers.
func (m *boundConn) SetDeadline(t time.Time) error {
	m.mu.Lock()
	m.limit = t
	m.mu.Unlock()
	if t.IsZero() {
		return m.Conn.SetDeadline(t)
	}
	if err := m.Conn.SetWriteDeadline(t); err != nil {
		return err
	}
	return m.Conn.SetReadDeadline(nextCheck(t))
}

// nextCheck returns when a read that may last until limit looks at the context
// next.
func nextCheck(limit time.Time) time.Time {
	if next := time.Now().Add(client.PollEvery); next.Before(limit) {
		return next
	}
	return limit
}

// Read implements net.Conn.
func (m *boundConn) Read(b []byte) (int, error) {
	for looked := false; ; {
		n, err := m.Conn.Read(b)
		if n > 0 || err == nil {
			m.owesSince.Store(0)
			if m.suspected.Swap(false) {
				_ = m.setReadDeadline()
			}
			if m.greeting == "" {
				m.greeting = string(b[:min(n, 200)])
			} else {
				m.greeting = " " // and something followed
			}
			return n, err
		}
		ne, ok := err.(net.Error)
		if !ok || !ne.Timeout() {
			if text, ok := strings.CutPrefix(m.greeting, "-"); ok {
				text, _, _ = strings.Cut(text, "\r\n")
				return n, &client.Refusal{Text: text}
			}
			return n, err
		}
		if m.suspected.Load() {
			if looked {
				m.Conn.Close()
				return n, net.ErrClosed
			}
			looked = true
			if err := m.Conn.SetReadDeadline(time.Now().Add(client.LastLook)); err != nil {
				return 0, err
			}
			continue
		}
		limit := m.callLimit()
		if limit.IsZero() {
			// The deadline was that of an earlier request, and no longer
			// applies.
			if err := m.setReadDeadline(); err != nil {
				return 0, err
			}
			continue
		}
		m.loneCall.noteSlow()
		m.loneCall.look()
		ctx := m.loneCall.context()
		if !time.Now().Before(limit) || ctx != nil && ctx.Err() != nil {
			return n, os.ErrDeadlineExceeded
		}
		if err := m.setReadDeadline(); err != nil {
			return 0, err
		}
	}
}

// callLimit returns the deadline of a single caller's request.
func (m *boundConn) callLimit() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.limit
}

// setReadDeadline sets when a read looks at the context next: never, if there
// are many callers.
func (m *boundConn) setReadDeadline() error {
	next := m.callLimit()
	if !next.IsZero() {
		next = nextCheck(next)
	}
	err := m.Conn.SetReadDeadline(next)
	if err == nil && m.suspected.Load() { // suspected in the meantime
		err = m.Conn.SetReadDeadline(time.Now())
	}
	return err
}
