package rueidisclient

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
)

// doubt finds out whether a server is silent, or only a connection to it: a firewall has
// forgotten the connection, or its proxy has died. A shared connection that owes an
// answer for doubtAfter is doubted, and the server is asked on a new one. It serves its
// clients in turn. So if it answers there, the old connection answers no more, and is
// closed: the calls on it fail, and the core repeats them before a Lock has to give the
// store up.
//
// The zero value asks nothing. Nothing is asked while all connections are answered.
type doubt struct {
	dial   func(ctx context.Context) (net.Conn, error) // nil: the connections are the user's
	over   context.Context                             // ends with the driver's connections
	life   atomic.Pointer[client.Life]                 // nil before the driver is made
	asking atomic.Bool
	after  atomic.Int64 // the time since epoch before which no connection is doubted

	// Guarded by asking:
	pause  time.Duration // the last one
	closed int           // questions since then, each of which closed connections
	last   time.Duration // the time since epoch of the last question
}

const (
	// doubtAfter leaves time for two connections, one after the other, within the least
	// time that a Lock waits for a silent store.
	doubtAfter = 500 * time.Millisecond
	// doubtLimit bounds the question.
	doubtLimit = 2 * time.Second
	// mostDoubts is the number of questions before a pause: as many as a client has
	// connections that may be silent, and one more. A proxy may answer PING itself, for a
	// server that is slow, and every connection would be closed.
	mostDoubts = 3
	// firstDoubtPause is the pause after a question that closed nothing: a distant server,
	// or a slow one, is not asked with each request. It doubles up to lastDoubtPause.
	firstDoubtPause = 5 * time.Second
	lastDoubtPause  = 5 * time.Minute
)

// look is called every client.PollEvery while requests wait.
func (a *loneCall) look() {
	d := &a.doubt
	now := time.Since(epoch)
	life := d.life.Load()
	if d.dial == nil || life == nil || now < time.Duration(d.after.Load()) {
		return
	}
	since := now - doubtAfter
	doubted := a.owing(since)
	if len(doubted) == 0 || !d.asking.CompareAndSwap(false, true) {
		return
	}
	if !life.Begin(func() {
		defer d.asking.Store(false)
		if now-d.last > lastDoubtPause {
			d.pause, d.closed = 0, 0
		}
		d.last = now
		if d.answers() && a.closeOwing(doubted, since) {
			if d.closed++; d.closed < mostDoubts {
				return
			}
		}
		d.closed, d.pause = 0, min(max(2*d.pause, firstDoubtPause), lastDoubtPause)
		d.after.Store(int64(time.Since(epoch) + d.pause))
	}) {
		d.asking.Store(false)
	}
}

// owing returns the shared connections that have owed an answer since then.
func (a *loneCall) owing(since time.Duration) (all []*boundConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for m := range a.conns {
		if m.owes(since) {
			all = append(all, m)
		}
	}
	return all
}

// closeOwing closes those of the doubted connections that still owe the answer. It
// reports false if one of them has had it: the server is slow.
func (a *loneCall) closeOwing(doubted []*boundConn, since time.Duration) bool {
	slow := false
	for _, m := range doubted {
		a.mu.Lock()
		_, open := a.conns[m]
		a.mu.Unlock()
		switch {
		case !open: // its call has given it up meanwhile
		case m.owes(since):
			m.suspect()
		default:
			slow = true
		}
	}
	return !slow
}

// owes reports whether a shared connection has owed an answer since then.
func (m *boundConn) owes(since time.Duration) bool {
	begun := m.owesSince.Load()
	return !m.dedicated && begun != 0 && time.Duration(begun) <= since
}

// answers reports whether the server answers on a new connection. A user that has not
// logged in is answered, too.
func (d *doubt) answers() bool {
	ctx, cancel := context.WithTimeout(d.over, doubtLimit)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	b := make([]byte, 64)
	n, _ := conn.Read(b)
	return bytes.HasPrefix(b[:n], []byte("+PONG")) || bytes.HasPrefix(b[:n], []byte("-NOAUTH"))
}
