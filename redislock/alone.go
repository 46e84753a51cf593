package redislock

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// alone watches the context of the one request that is under way by itself, on
// connections that the driver has made.
//
// A connection of rueidis that has one caller reads the answer in the caller's
// own goroutine, which is what makes it fast and what no context can
// interrupt. So the connection looks after the context itself, whenever an
// answer takes longer than glance. Giving up costs the connection; a server
// that is found slow, or to which a new connection is made, is therefore asked
// by way of senders for a while, where giving up costs nothing and the detour
// is not felt.
type alone struct {
	tied bool // the connections look after the context
	slow atomic.Int32

	mu  sync.Mutex
	ctx context.Context // nil when no request is under way alone
}

const (
	// glance is how often the context is looked at. A call has to return
	// within 50 ms of its context's end.
	glance = 20 * time.Millisecond
	// detours is how many requests go by way of senders after a slow one.
	detours = 64
)

// found says that the server was slow, or that a connection broke.
func (a *alone) found() { a.slow.Store(detours) }

// detour says whether a request is to go by way of a sender.
func (a *alone) detour() bool {
	if a.slow.Load() <= 0 {
		return false
	}
	a.slow.Add(-1)
	return true
}

// begin notes the context of a request.
func (a *alone) begin(ctx context.Context) {
	a.mu.Lock()
	a.ctx = ctx
	a.mu.Unlock()
}

func (a *alone) end() {
	a.mu.Lock()
	a.ctx = nil
	a.mu.Unlock()
}

func (a *alone) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ctx
}

// mortal is a connection that ends with the driver, and with the context of
// the request that uses it alone.
type mortal struct {
	net.Conn
	stop  func() bool // of the tie to the driver's life
	alone *alone

	mu    sync.Mutex
	limit time.Time // of a single caller's request; zero when there are many

	first string // what the server said, as long as that is all
}

// refusal is the error of a connection that the server has answered with an
// error and closed: it has no room for clients, or none for ours.
type refusal struct{ text string }

// Error returns the server's words.
func (r *refusal) Error() string { return r.text }

// Close implements net.Conn.
func (m *mortal) Close() error {
	m.stop()
	return m.Conn.Close()
}

// SetDeadline implements net.Conn. The client sets a deadline for each request
// of a single caller, and none once there are many.
func (m *mortal) SetDeadline(t time.Time) error {
	m.mu.Lock()
	m.limit = t
	m.mu.Unlock()
	if t.IsZero() {
		return m.Conn.SetDeadline(t)
	}
	if err := m.Conn.SetWriteDeadline(t); err != nil {
		return err
	}
	return m.Conn.SetReadDeadline(soonest(t))
}

// soonest is when a read that may last until limit looks around next.
func soonest(limit time.Time) time.Time {
	if next := time.Now().Add(glance); next.Before(limit) {
		return next
	}
	return limit
}

// Read implements net.Conn.
func (m *mortal) Read(b []byte) (int, error) {
	for {
		n, err := m.Conn.Read(b)
		if n > 0 || err == nil {
			if m.first == "" {
				m.first = string(b[:min(n, 200)])
			} else {
				m.first = " " // and something followed
			}
			return n, err
		}
		ne, ok := err.(net.Error)
		if !ok || !ne.Timeout() {
			if text, ok := strings.CutPrefix(m.first, "-"); ok {
				text, _, _ = strings.Cut(text, "\r\n")
				return n, &refusal{text}
			}
			return n, err
		}
		m.mu.Lock()
		limit := m.limit
		m.mu.Unlock()
		if limit.IsZero() {
			// The deadline was of a request before, and is no more.
			if err := m.Conn.SetReadDeadline(time.Time{}); err != nil {
				return 0, err
			}
			continue
		}
		m.alone.found()
		ctx := m.alone.context()
		if !time.Now().Before(limit) || ctx != nil && ctx.Err() != nil {
			return n, os.ErrDeadlineExceeded
		}
		if err := m.Conn.SetReadDeadline(soonest(limit)); err != nil {
			return 0, err
		}
	}
}
