package pglock

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/bits"
	mrand "math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// newChannel returns a unique channel name.
func newChannel() string { return "holdfast_" + strings.ToLower(rand.Text()) }

// A listener receives the notifications of its driver's channel, on a
// connection of its own.
type listener struct {
	db         *database
	noPush     atomic.Bool // the connection receives nothing, because of a pooler
	echo       atomic.Pointer[chan struct{}]
	cancelWait atomic.Pointer[context.CancelFunc] // ends the wait for a notification
}

// checkNow makes the listener check its connection now.
func (l *listener) checkNow() {
	if wake := l.cancelWait.Load(); wake != nil {
		(*wake)()
	}
}

// Times of the listener: the least and the greatest pause between attempts to
// connect, and the wait for the notification that it sends itself through a
// pooler.
const (
	relistenMin = 20 * time.Millisecond
	relistenMax = time.Second
	echoTime    = time.Second
)

// firstConnect bounds the attempt to connect that Watch makes. relistenUseless
// is the longest pause between attempts that the server refuses, or whose
// connections receive nothing.
const (
	firstConnect    = 2 * time.Second
	relistenUseless = 30 * time.Second
)

// The listener checks its connection this often, to notice when it is dead.
const (
	listenPing     = 10 * time.Second
	listenPingTime = 2 * time.Second
)

// notifyStmts returns the statement that notifies other clients, apart from
// clients without pushes.
func (d *database) notifyStmts(pushes []sqlqueue.Push) []*sqlqueue.Stmt {
	var calls []string
	var args []any
	for _, p := range d.tables.Others(pushes) {
		n := len(args)
		calls = append(calls, fmt.Sprintf(notify+"encode($%d, 'escape'), encode($%d, 'escape'))", n+1, n+2))
		args = append(args, p.Wake, payload(p.ID, p.Status))
	}
	if len(calls) == 0 {
		return nil
	}
	// The texts differ only in their number of arguments, and only where one
	// request grants several tickets.
	text := &sqlqueue.Text{SQL: "SELECT " + strings.Join(calls, ", ")}
	return []*sqlqueue.Stmt{{Text: text, Args: args}}
}

// payload returns the text of a notification: the state, the token, and the
// ticket's id.
func payload(id string, p driver.Status) string {
	state := "g"
	if p.State == driver.Held {
		state = "h"
	}
	return state + strconv.FormatUint(p.Token, 10) + " " + id
}

func parsePayload(text string) (id string, p driver.Status, ok bool) {
	head, id, ok := strings.Cut(text, " ")
	if !ok || head == "" || id == "" {
		return "", p, false
	}
	token, err := strconv.ParseUint(head[1:], 10, bits.UintSize)
	switch {
	case err != nil:
		return "", p, false
	case head[0] == 'h' && token > 0:
		return id, driver.Status{State: driver.Held, Token: token}, true
	case head[0] == 'g':
		return id, driver.Status{State: driver.Gone}, true
	}
	return "", p, false
}

// Watch implements [driver.Driver]. It opens the connection for LISTEN. If that
// receives nothing because of a pooler, Watch still returns nil, and the driver
// tries again later. Until then, waiting tickets have a short Status.Recheck,
// as they have without a connection.
func (d *Driver) Watch(ctx context.Context, moved func(string, driver.Status)) error {
	if err := d.db.tables.CheckOpen(ctx); err != nil {
		return err
	}
	if err := d.db.tables.Watch(moved); err != nil {
		return err
	}
	first, cancel := context.WithTimeout(ctx, firstConnect)
	c, err := d.listener.listen(first)
	cancel()
	if err != nil {
		d.db.tables.Unwatch()
		if e := d.db.tables.CheckOpen(ctx); e != nil {
			return e
		}
		return err
	}
	if !d.db.tables.Go(func() { d.listener.run(ctx, c) }) {
		closeConn(c)
		return driver.ErrClosed
	}
	return nil
}

// run reads notifications until ctx ends or the driver is closed.
func (l *listener) run(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.db.tables.Context(), cancel)()
	defer l.db.tables.Unwatch()
	wait, useless := relistenMin, relistenMax
	for {
		if c != nil {
			wait = relistenMin
			if l.noPush.Load() {
				// The connection is useless. A later one may be better: the
				// machine may have been too busy for the echo, or somebody may
				// remove the pooler.
				closeConn(c)
				wait, useless = useless, min(2*useless, relistenUseless)
			} else {
				useless = relistenMax
				l.read(ctx, c)
				l.db.tables.PushesArrive.Store(false)
				closeConn(c)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + mrand.N(wait/2)):
		}
		wait = min(2*wait, relistenMax)
		var err error
		if c, err = l.listen(ctx); err != nil {
			c = nil
			if driver.ClassOf(err) == driver.Refused {
				wait = relistenUseless
			}
		} else {
			l.db.tables.Notify("", driver.Status{})
		}
	}
}

// listen connects and subscribes.
func (l *listener) listen(ctx context.Context) (*pgx.Conn, error) {
	config := l.db.pool.Config()
	cc := config.ConnConfig
	if l.db.opt.Listen != nil {
		cc = l.db.opt.Listen.Copy()
		l.db.sockets.track(cc)
	} else {
		if !l.db.owned { // the driver's own pool does that
			l.db.sockets.trackPool(config)
		}
		if err := config.BeforeConnect(ctx, cc); err != nil {
			return nil, notConnected(err)
		}
	}
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { l.onNotification(n) }
	ctx, cancel := context.WithTimeout(ctx, 2*lockTimeout)
	defer cancel()
	stop := context.AfterFunc(l.db.tables.Context(), cancel)
	defer stop()
	c, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		if ctx.Err() != nil {
			return nil, connError(ctx, driver.Unavailable, err)
		}
		return nil, notConnected(err)
	}
	noPush, err := l.subscribe(ctx, c)
	if err != nil {
		closeConn(c)
		return nil, classify(ctx, err, false)
	}
	l.noPush.Store(noPush)
	l.db.tables.PushesArrive.Store(!noPush)
	return c, nil
}

// subscribe runs LISTEN, and reports whether the connection will receive
// nothing. A pooler shows by the id of the server's process, which differs from
// the id given when the connection began. Then a notification sent through the
// pool decides: poolers that keep one connection for each client deliver it.
func (l *listener) subscribe(ctx context.Context, c *pgx.Conn) (noPush bool, err error) {
	if _, err := c.Exec(ctx, "LISTEN "+l.db.tables.Name); err != nil {
		return false, err
	}
	var pid uint32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return false, err
	}
	if pid == c.PgConn().PID() {
		return false, nil
	}
	// The connection for LISTEN may bypass the pooler that the pool uses, or
	// lead to another server: only an echo can show that it receives.
	echo := make(chan struct{}, 1)
	l.echo.Store(&echo)
	defer l.echo.Store(nil)
	if _, err := l.db.pool.Exec(ctx, "SELECT pg_notify($1, 'echo')", pgx.QueryExecModeExec, l.db.tables.Name); err != nil {
		return false, err
	}
	wait, cancel := context.WithTimeout(ctx, echoTime)
	defer cancel()
	for {
		err := c.PgConn().WaitForNotification(wait)
		select {
		case <-echo:
			return false, nil
		default:
		}
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case wait.Err() != nil:
			return true, nil
		case err != nil:
			return false, err
		}
	}
}

// read waits for notifications until the connection ends.
func (l *listener) read(ctx context.Context, c *pgx.Conn) {
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, listenPing)
		l.cancelWait.Store(&cancel)
		err := c.PgConn().WaitForNotification(wait)
		quiet := wait.Err() != nil
		cancel()
		if err == nil {
			continue
		}
		if c.IsClosed() || !quiet || ctx.Err() != nil {
			return
		}
		ping, stop := context.WithTimeout(ctx, listenPingTime) // not into cancel, which nudge reads
		_, err = c.Exec(ping, "SELECT 1")
		stop()
		if err != nil {
			return
		}
	}
}

// onNotification handles one notification.
func (l *listener) onNotification(n *pgconn.Notification) {
	if n.Channel != l.db.tables.Name {
		return
	}
	if n.Payload == "echo" {
		if echo := l.echo.Load(); echo != nil {
			select {
			case *echo <- struct{}{}:
			default:
			}
		}
		return
	}
	id, p, ok := parsePayload(n.Payload)
	if ok {
		l.db.tables.Notify(id, p)
	}
}

func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx)
}
