package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// A wakeup is the connection on which a driver sleeps at the server until
// another client interrupts the sleep. It holds the named lock by which others
// find it.
type wakeup struct {
	db           *database
	pool         *sql.DB     // of this connection alone
	noPush       atomic.Bool // interruptions do not reach it: a pooler, or missing rights
	hasSleepLock bool        // the connection holds sleepLock

	cancelSleep atomic.Pointer[context.CancelFunc] // ends the sleep, and the connection
}

// reconnect makes the driver replace the connection, which may be dead.
func (w *wakeup) reconnect() {
	if awake := w.cancelSleep.Load(); awake != nil {
		(*awake)()
	}
}

// sleepLock is a named lock. One wake-up connection of a server holds it and
// sleeps, and all others wait for it. Sleepers of MariaDB share a mutex: a
// client that interrupts a sleeper while that mutex is taken waits for a
// twentieth of a second. Each wait for a named lock has a mutex of its own.
const sleepLock = "holdfast_parking_lot"

const (
	// sleepMax is the longest sleep before the driver reads messages by itself:
	// the cost of a lost interruption.
	sleepMax = 5 * time.Second
	// sleepGrace is the time after sleepMax within which the server must
	// answer; without an answer, the connection counts as dead.
	sleepGrace = 5 * time.Second
	// messageTTL is the time for which an unread message is kept.
	messageTTL = time.Minute
	// reconnectMin and reconnectMax bound the pause between attempts to
	// connect. reconnectUseless is the upper bound where the connection is
	// useless: interruptions do not reach it, or the server refuses its
	// statements.
	reconnectMin     = 20 * time.Millisecond
	reconnectMax     = time.Second
	reconnectUseless = 30 * time.Second
	// firstConnect bounds the attempt to connect that Watch makes.
	firstConnect = 2 * time.Second
	// echoTime is the longest wait for the interruption that the driver sends
	// itself.
	echoTime = time.Second
)

// notifyStmts returns the statements that write messages for other clients,
// apart from clients without pushes, and the statements that interrupt their
// wake-up connections, each once.
func (d *database) notifyStmts(pushes []sqlqueue.Push) []*sqlqueue.Stmt {
	others := d.tables.Others(pushes)
	if len(others) == 0 {
		return nil
	}
	var rows, wakes []string
	var args []any
	for _, p := range others {
		rows = append(rows, "(?, ?, ?, ?, "+d.now()+" + ?)")
		args = append(args, p.Wake, p.ID, int64(p.Status.State), int64(p.Status.Token), messageTTL.Microseconds())
		if !slices.Contains(wakes, p.Wake) {
			wakes = append(wakes, p.Wake)
		}
	}
	text := &sqlqueue.Text{Writes: true, SQL: d.insertMessages() + " (wake, id, state, token, until) VALUES " + strings.Join(rows, ", ") +
		" ON DUPLICATE KEY UPDATE state = VALUES(state), token = VALUES(token), until = VALUES(until)"}
	out := []*sqlqueue.Stmt{{Text: text, Args: args}}
	for _, wake := range wakes {
		if interrupt, ok := interruptStmt(wake); ok {
			out = append(out, interrupt)
		}
	}
	return out
}

// insertMessages returns the beginning of the statement that writes messages.
func (d *database) insertMessages() string { return "INSERT INTO " + d.opt.prefix() + "post" }

// isNotification reports whether a statement only notifies another client.
func (d *database) isNotification(s *sqlqueue.Stmt) bool {
	return isInterrupt(s) || strings.HasPrefix(s.Text.SQL, d.insertMessages()+" ")
}

// Watch implements [driver.Driver]. It opens the wake-up connection. If a pool
// has none to spare, or a pooler keeps interruptions from it, Watch still
// returns nil, and the driver tries again later. Until then, waiting tickets
// have a short Status.Recheck, as they have without a connection.
func (d *Driver) Watch(ctx context.Context, moved func(string, driver.Status)) error {
	if err := d.db.tables.Begin(ctx); err != nil {
		return err
	}
	if err := d.db.tables.Watch(moved); err != nil {
		return err
	}
	first, cancel := context.WithTimeout(ctx, firstConnect)
	c, err := d.wakeup.connect(first)
	cancel()
	if err != nil && !errors.Is(err, errNoSpareConn) {
		d.db.tables.Unwatch()
		if e := d.db.tables.CheckOpen(ctx); e != nil {
			return e
		}
		return err
	}
	if !d.db.tables.Go(func() { d.wakeup.run(ctx, c) }) {
		if c != nil {
			c.discard()
		}
		return driver.ErrClosed
	}
	return nil
}

// run sleeps and reads messages until ctx ends or the driver is closed. A nil c
// means that the first connection is still to be made.
func (w *wakeup) run(ctx context.Context, c *conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.db.tables.Context(), cancel)()
	defer w.db.tables.Unwatch()
	wait, useless := reconnectMin, reconnectMax
	for {
		if c != nil {
			wait = reconnectMin
			// Until the echo decides, interruptions are assumed to arrive.
			arrived, err := w.echo(ctx, c)
			if w.noPush.Store(err == nil && !arrived); arrived {
				err = w.listen(ctx, c)
			}
			if driver.ClassOf(err) == driver.Refused { // the next connection will fare no better
				w.noPush.Store(true)
			}
			w.db.tables.PushesArrive.Store(false)
			w.db.tables.Notify("", driver.Status{})
			c.discard()
		}
		if w.noPush.Load() { // or the machine was too busy
			wait, useless = useless, min(2*useless, reconnectUseless)
		} else {
			useless = reconnectMax
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
		wait = min(2*wait, reconnectMax)
		var err error
		if c, err = w.connect(ctx); err != nil {
			c = nil
			if driver.ClassOf(err) == driver.Refused {
				wait = reconnectUseless
			}
		} else {
			w.db.tables.Notify("", driver.Status{})
		}
	}
}

// errNoSpareConn is the error of a pool that is too small for a permanent
// connection: one connection must be left for requests.
var errNoSpareConn = errors.New("the pool has no connection to spare for wake-ups")

// connect connects and takes the named lock.
func (w *wakeup) connect(ctx context.Context) (*conn, error) {
	d := w.db
	if st := d.pool.Stats(); !d.owned && st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections-1 {
		return nil, driver.Wrap(driver.Unavailable, errNoSpareConn)
	}
	ctx, cancel := context.WithTimeout(ctx, sleepGrace)
	defer cancel()
	defer context.AfterFunc(d.tables.Context(), cancel)()
	sc, err := w.pool.Conn(ctx)
	if err != nil {
		return nil, d.notAcquired(ctx, err)
	}
	w.hasSleepLock = false
	c := &conn{Conn: sc, mode: d.mode.Load()} // known since the request for the tables
	// The connection is never given back. Without autocommit, it would go on
	// seeing the data from when it began.
	commit := &item{text: "SET SESSION autocommit = 1"}
	var got sql.NullInt64
	take := &item{text: "SELECT GET_LOCK(?, 0)", args: []any{d.tables.Name}, rows: true, row: func(scan func(...any) error) error { return scan(&got) }}
	if err = c.run(ctx, false, commit, take); err != nil {
		c.discard()
		return nil, err
	}
	d.tables.PushesArrive.Store(got.Int64 == 1)
	return c, nil
}

// echo interrupts the sleep through the pool until an interruption arrives. It
// is not enough that the named lock is held: a pooler may hold the lock on a
// connection other than the sleeping one.
func (w *wakeup) echo(ctx context.Context, c *conn) (arrived bool, err error) {
	interrupting, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		retry := backoff.Backoff{First: time.Millisecond, Last: 50 * time.Millisecond}
		for interrupting.Err() == nil {
			// An interruption in flight is not abandoned: that would cost a
			// connection.
			err := w.db.inConn(ctx, func(c *conn) error {
				return c.run(ctx, false, &item{text: interruptText(w.db.tables.Name)})
			})
			if denied(err) || code(err) == notOwner {
				return
			}
			retry.Wait(interrupting) // the sleep may not have begun yet
		}
	}()
	for {
		var woke sql.NullInt64
		err = c.run(ctx, false, w.sleepStmt("false", nil, echoTime, &woke))
		if err == nil && !w.hasSleepLock && woke.Int64 == 1 {
			w.hasSleepLock = true // and it did not sleep
			continue
		}
		stop()
		<-stopped
		if wasInterrupted(err) {
			return true, nil
		}
		return err == nil && (!woke.Valid || woke.Int64 == 1), err
	}
}

func wasInterrupted(err error) bool { return code(err) == interrupted }

// sleepStmt returns the statement that sleeps for at most this time, unless a
// condition holds. It sets woke where an interruption is no error. For the
// holder of sleepLock, 1 means that the sleep was interrupted. For others, NULL
// means that, and 1 means that the connection now holds sleepLock.
func (w *wakeup) sleepStmt(unless string, args []any, atMost time.Duration, woke *sql.NullInt64) *item {
	it := &item{rows: true, row: func(scan func(...any) error) error { return scan(woke) }}
	if w.hasSleepLock {
		it.text = "SELECT SLEEP(IF(" + unless + ", 0, ?))"
		it.args = append(args, atMost.Seconds())
	} else {
		it.text = "SELECT IF(" + unless + ", 0, GET_LOCK(?, ?))"
		it.args = append(args, sleepLock, int64(atMost.Seconds()))
	}
	return it
}

// seenMax is the greatest number of messages that stay in the table after they were read.
// The leave of a ticket removes its own, see leaveCompound. The wake-up connection
// removes the others together, now and then: each removal is a commit.
const seenMax = 16

// listen sleeps and reads messages until the connection ends or one of its own
// statements fails, and returns the reason.
func (w *wakeup) listen(ctx context.Context, c *conn) error {
	var seen []message // read, and perhaps still there
	remove := false
	for ctx.Err() == nil {
		limit, cancel := context.WithTimeout(ctx, sleepMax+sleepGrace)
		w.cancelSleep.Store(&cancel)
		read, err := w.sleepAndRead(limit, c, seen, remove)
		cut := wasInterrupted(err) || hitTimeLimit(err)
		if cut {
			read = nil
			err = c.run(limit, false, w.readStmt(&read))
		}
		cancel()
		if err != nil {
			if !wasInterrupted(err) && !hitTimeLimit(err) {
				return err
			}
			continue // nothing is lost: what is there prevents the next sleep
		}
		news := 0
		for _, m := range read {
			switch {
			case slices.ContainsFunc(seen, m.same):
				continue
			case m.status.State == 0:
				w.db.tables.Notify("", driver.Status{}) // the message cannot be read
			default:
				w.db.tables.Notify(m.id, m.status)
			}
			news++
		}
		seen, remove = read, len(read) > seenMax || news == 0 && !cut
	}
	return nil
}

// hitTimeLimit reports whether the server ended a statement because of its own
// limit on run time.
func hitTimeLimit(err error) bool {
	n := code(err)
	return n == 3024 || n == 1969
}

// message is one row of the table of messages.
type message struct {
	id     string
	state  int64 // as it is in the row
	status driver.Status
}

// same reports whether another message is this one. A ticket that was granted may get
// a second message in the row of the first: that it was removed.
func (m message) same(other message) bool { return m.id == other.id && m.state == other.state }

// messageOf returns the message in a row that another client wrote. A message
// without a valid meaning has no state.
func messageOf(id string, state, token int64) message {
	switch {
	case state == int64(driver.Held) && token > 0:
		return message{id, state, driver.Status{State: driver.Held, Token: uint64(token)}}
	case state == int64(driver.Gone):
		return message{id, state, driver.Status{State: driver.Gone}}
	}
	return message{id: id, state: state}
}

// sleepAndRead sleeps while there are no messages but those that were seen, and reads
// all that are there. With remove set, it removes the seen ones first. An interruption
// ends the sleep. One that arrives before the sleep begins is not lost: its message is
// there by then, and prevents the sleep.
func (w *wakeup) sleepAndRead(ctx context.Context, c *conn, seen []message, remove bool) (read []message, err error) {
	post, own := w.db.opt.prefix()+"post", []any{[]byte(w.db.tables.Name)}
	var items []*item
	which, args := " WHERE wake = ?", own
	if len(seen) > 0 {
		those := make([]string, len(seen))
		args = slices.Clone(own)
		for i, m := range seen {
			those[i] = "id = ? AND state = ?"
			args = append(args, []byte(m.id), m.state)
		}
		list := "(" + strings.Join(those, " OR ") + ")"
		if remove {
			items = append(items, &item{text: "DELETE FROM " + post + which + " AND " + list, args: args})
			args = own
		} else {
			which += " AND NOT " + list
		}
	}
	var woke sql.NullInt64
	items = append(items, w.sleepStmt("EXISTS(SELECT 1 FROM "+post+which+")", args, sleepMax, &woke))
	items = append(items, w.readStmt(&read))
	err = c.run(ctx, false, items...)
	w.hasSleepLock = w.hasSleepLock || woke.Int64 == 1
	return read, err
}

// readStmt returns the statement that appends all messages to read.
func (w *wakeup) readStmt(read *[]message) *item {
	return &item{text: "SELECT id, state, token FROM " + w.db.opt.prefix() + "post WHERE wake = ?", args: []any{[]byte(w.db.tables.Name)}, rows: true,
		row: func(scan func(...any) error) error {
			var id string
			var state, token int64
			err := scan(&id, &state, &token)
			if err == nil {
				*read = append(*read, messageOf(id, state, token))
			}
			return err
		}}
}
