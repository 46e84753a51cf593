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
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// newChannel returns a channel name that nobody else has.
func newChannel() string { return "holdfast_" + strings.ToLower(rand.Text()) }

// A listener hears what the channel of its driver is told, on a connection of
// its own.
type listener struct {
	d    *Driver
	deaf atomic.Bool // the connection is there but hears nothing: a pooler
	echo atomic.Pointer[chan struct{}]
}

// How long the listener waits between attempts to connect, at least and at
// most, and for the notification that it sends itself through a pooler.
const (
	relistenMin = 20 * time.Millisecond
	relistenMax = time.Second
	echoTime    = time.Second
)

// The listener's connection is asked for an answer this often, so that one that
// leads nowhere is noticed.
const (
	listenPing     = 10 * time.Second
	listenPingTime = 5 * time.Second
)

// tell returns the statement that notifies those other clients who hear.
func (d *Driver) tell(pushes []sqlline.Push) []*sqlline.Stmt {
	var calls []string
	var args []any
	for _, p := range d.r.Others(pushes) {
		n := len(args)
		calls = append(calls, fmt.Sprintf("pg_notify(encode($%d, 'escape'), encode($%d, 'escape'))", n+1, n+2))
		args = append(args, p.Wake, payload(p.ID, p.Place))
	}
	if len(calls) == 0 {
		return nil
	}
	// The texts differ by their number of arguments only, as often as one
	// request grants several.
	text := &sqlline.Text{SQL: "SELECT " + strings.Join(calls, ", ")}
	return []*sqlline.Stmt{{Text: text, Args: args}}
}

// A payload is the state, the token, and the ticket's id.
func payload(id string, p driver.Place) string {
	state := "g"
	if p.State == driver.Held {
		state = "h"
	}
	return state + strconv.FormatUint(p.Token, 10) + " " + id
}

func parse(text string) (id string, p driver.Place, ok bool) {
	head, id, ok := strings.Cut(text, " ")
	if !ok || head == "" || id == "" {
		return "", p, false
	}
	token, err := strconv.ParseUint(head[1:], 10, bits.UintSize)
	switch {
	case err != nil:
		return "", p, false
	case head[0] == 'h' && token > 0:
		return id, driver.Place{State: driver.Held, Token: token}, true
	case head[0] == 'g':
		return id, driver.Place{State: driver.Gone}, true
	}
	return "", p, false
}

// Watch implements [driver.Driver]. It opens the connection for LISTEN. Where
// that cannot hear anything, because of a pooler or because the server has no
// connection left, it returns all the same: waiting tickets then have a short
// Place.Recheck.
func (d *Driver) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	if err := d.r.Before(ctx); err != nil {
		return err
	}
	if err := d.r.Watch(moved); err != nil {
		return err
	}
	c, err := d.ear.listen(ctx)
	if err != nil && code(err) != tooManyConnections {
		d.r.Unwatch()
		return err
	}
	if !d.r.Goes(func() { d.ear.run(ctx, c) }) {
		if c != nil {
			closeConn(c)
		}
		return driver.ErrClosed
	}
	return nil
}

// run reads notifications until ctx ends or the driver is closed. A nil c means
// that the first connection is still to be made.
func (e *listener) run(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.d.r.Life(), cancel)()
	defer e.d.r.Unwatch()
	wait := relistenMin
	for {
		if c != nil {
			wait = relistenMin
			if e.deaf.Load() {
				// The connection is of no use. Somebody may take the pooler
				// out of the way some day.
				closeConn(c)
				wait = 30 * time.Second
			} else {
				e.read(ctx, c)
				e.d.r.Hears.Store(false)
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
		if c, err = e.listen(ctx); err != nil {
			c = nil
		} else {
			e.d.r.Moved("", driver.Place{})
		}
	}
}

// listen connects and listens.
func (e *listener) listen(ctx context.Context) (*pgx.Conn, error) {
	config := e.d.pool.Config()
	cc := config.ConnConfig
	if e.d.opt.Listen != nil {
		cc = e.d.opt.Listen.Copy()
	} else if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, cc); err != nil {
			return nil, notConnected(err)
		}
	}
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { e.hear(n) }
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	stop := context.AfterFunc(e.d.r.Life(), cancel)
	defer stop()
	c, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		if ctx.Err() != nil {
			return nil, lost(ctx, driver.Unavailable, err)
		}
		return nil, notConnected(err)
	}
	deaf, err := e.subscribe(ctx, c)
	if err != nil {
		closeConn(c)
		return nil, classify(ctx, err, false)
	}
	e.deaf.Store(deaf)
	e.d.r.Hears.Store(!deaf)
	return c, nil
}

// subscribe listens, and says whether nothing will be heard. A pooler shows by
// the id of the server's process, which is not the one that was said when the
// connection began. With a pooler a notification decides, sent through the
// pool: poolers that keep one connection for each client deliver it.
func (e *listener) subscribe(ctx context.Context, c *pgx.Conn) (deaf bool, err error) {
	if _, err := c.Exec(ctx, "LISTEN "+e.d.r.Name); err != nil {
		return false, err
	}
	var pid uint32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return false, err
	}
	if pid == c.PgConn().PID() {
		return false, nil
	}
	// The connection for LISTEN may have gone past the pooler that the pool
	// goes through, or to another server: only an echo tells.
	echo := make(chan struct{}, 1)
	e.echo.Store(&echo)
	defer e.echo.Store(nil)
	if _, err := e.d.pool.Exec(ctx, "SELECT pg_notify($1, 'echo')", pgx.QueryExecModeExec, e.d.r.Name); err != nil {
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
func (e *listener) read(ctx context.Context, c *pgx.Conn) {
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, listenPing)
		err := c.PgConn().WaitForNotification(wait)
		quiet := wait.Err() != nil
		cancel()
		if err == nil {
			continue
		}
		if c.IsClosed() || !quiet || ctx.Err() != nil {
			return
		}
		ping, cancel := context.WithTimeout(ctx, listenPingTime)
		_, err = c.Exec(ping, "SELECT 1")
		cancel()
		if err != nil {
			return
		}
	}
}

// hear handles one notification.
func (e *listener) hear(n *pgconn.Notification) {
	if n.Channel != e.d.r.Name {
		return
	}
	if n.Payload == "echo" {
		if echo := e.echo.Load(); echo != nil {
			select {
			case *echo <- struct{}{}:
			default:
			}
		}
		return
	}
	id, p, ok := parse(n.Payload)
	if ok {
		e.d.r.Moved(id, p)
	}
}

func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx)
}
