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
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// A bell is the connection on which a driver sleeps at the server. It holds the
// named lock that others find it by.
type bell struct {
	d      *Driver
	deaf   atomic.Bool // nobody hears it: a pooler, or no rights
	keeper bool        // the connection holds parkingLot
}

// parkingLot is a named lock that all bells of a server wait for, but for the
// one that has it and sleeps. Sleepers of MariaDB share a mutex, and whoever
// interrupts one waits for a twentieth of a second when it finds that taken; who
// waits for a named lock has a mutex of its own.
const parkingLot = "holdfast_parking_lot"

const (
	// nap is how long it sleeps at most before it looks for messages itself:
	// what a ring that got lost costs.
	nap = 5 * time.Second
	// napGrace is how much later the answer may come before the connection is
	// taken for one that leads nowhere.
	napGrace = 5 * time.Second
	// keep is for how long a message is kept for who does not read it.
	keep = time.Minute
	// hangMin and hangMax are how long it waits between attempts to connect,
	// and hangDeaf where the connection is of no use.
	hangMin  = 20 * time.Millisecond
	hangMax  = time.Second
	hangDeaf = 30 * time.Second
	// echoTime is how long it waits for the ring that it sends itself.
	echoTime = time.Second
)

// tell returns the statements that write messages for those other clients who
// hear, and those that ring their bells, each once.
func (d *Driver) tell(pushes []sqlline.Push) []*sqlline.Stmt {
	others := d.r.Others(pushes)
	if len(others) == 0 {
		return nil
	}
	var rows, wakes []string
	var args []any
	for _, p := range others {
		rows = append(rows, "(?, ?, ?, ?, "+d.now()+" + ?)")
		args = append(args, p.Wake, p.ID, int64(p.Place.State), int64(p.Place.Token), keep.Microseconds())
		if !slices.Contains(wakes, p.Wake) {
			wakes = append(wakes, p.Wake)
		}
	}
	text := &sqlline.Text{Writes: true, SQL: "INSERT INTO " + d.opt.prefix() + "post (wake, id, state, token, until) VALUES " + strings.Join(rows, ", ") +
		" ON DUPLICATE KEY UPDATE state = VALUES(state), token = VALUES(token), until = VALUES(until)"}
	out := []*sqlline.Stmt{{Text: text, Args: args}}
	for _, wake := range wakes {
		out = append(out, &sqlline.Stmt{Text: ring, Args: []any{wake}})
	}
	return out
}

// Watch implements [driver.Driver]. It opens the connection of the bell. Where
// that is not heard, because of a pooler or because there is no connection left
// for it, Watch returns all the same: waiting tickets then have a short
// Place.Recheck.
func (d *Driver) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	if err := d.r.Begin(ctx); err != nil {
		return err
	}
	if err := d.r.Watch(moved); err != nil {
		return err
	}
	c, err := d.bell.hang(ctx)
	if err != nil && !full(code(err)) && !errors.Is(err, errNoRoom) {
		d.r.Unwatch()
		return err
	}
	if !d.r.Goes(func() { d.bell.run(ctx, c) }) {
		if c != nil {
			c.discard()
		}
		return driver.ErrClosed
	}
	return nil
}

// run sleeps and reads messages until ctx ends or the driver is closed. A nil c
// means that the first connection is still to be made.
func (b *bell) run(ctx context.Context, c *conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.d.r.Life(), cancel)()
	defer b.d.r.Unwatch()
	wait := hangMin
	for {
		if c != nil {
			wait = hangMin
			// Until it is known better, rings are taken to be heard.
			heard, err := b.echo(ctx, c)
			if b.deaf.Store(err == nil && !heard); heard {
				b.listen(ctx, c)
			}
			b.d.r.Hears.Store(false)
			b.d.r.Moved("", driver.Place{})
			c.discard()
		}
		if b.deaf.Load() {
			wait = hangDeaf
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
		wait = min(2*wait, hangMax)
		var err error
		if c, err = b.hang(ctx); err != nil {
			c = nil
		} else {
			b.d.r.Moved("", driver.Place{})
		}
	}
}

// errNoRoom says that a pool is too small for a connection that stays taken: it
// has to leave one for requests.
var errNoRoom = errors.New("the pool has no connection to spare for the bell")

// hang connects and takes the named lock.
func (b *bell) hang(ctx context.Context) (*conn, error) {
	d := b.d
	if st := d.db.Stats(); !d.owned && st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections-1 {
		return nil, driver.Wrap(driver.Unavailable, errNoRoom)
	}
	ctx, cancel := context.WithTimeout(ctx, napGrace)
	defer cancel()
	defer context.AfterFunc(d.r.Life(), cancel)()
	sc, err := d.bells.Conn(ctx)
	if err != nil {
		return nil, d.notAcquired(ctx, err)
	}
	b.keeper = false
	c := &conn{Conn: sc, way: d.way.Load()} // which the request for the tables has found out
	// The connection is never given back. Where sessions do not commit by
	// themselves, it would go on seeing what was there when it began.
	commit := &item{text: "SET SESSION autocommit = 1"}
	var got sql.NullInt64
	take := &item{text: "SELECT GET_LOCK(?, 0)", args: []any{d.r.Name}, rows: true, row: func(scan func(...any) error) error { return scan(&got) }}
	if err = c.run(ctx, false, commit, take); err != nil {
		c.discard()
		return nil, err
	}
	d.r.Hears.Store(got.Int64 == 1)
	return c, nil
}

// echo rings the bell through the pool until it is heard. That is more than the
// name of a lock that somebody holds: a pooler may hold it on a connection
// other than the one that sleeps.
func (b *bell) echo(ctx context.Context, c *conn) (heard bool, err error) {
	ringing, stop := context.WithCancel(ctx)
	rung := make(chan struct{})
	go func() {
		defer close(rung)
		for pause := time.Millisecond; ringing.Err() == nil; pause = min(2*pause, 50*time.Millisecond) {
			// A ring under way is not given up, which would cost a connection.
			err := b.d.inConn(ctx, func(c *conn) error {
				return c.run(ctx, false, &item{text: textRing, args: []any{b.d.r.Name}})
			})
			if denied(err) || code(err) == notOwner {
				return
			}
			select { // the sleep may not have begun yet
			case <-ringing.Done():
			case <-time.After(pause):
			}
		}
	}()
	for {
		var woke sql.NullInt64
		err = c.run(ctx, false, b.rest("false", nil, echoTime, &woke))
		if err == nil && !b.keeper && woke.Int64 == 1 {
			b.keeper = true // and it did not rest
			continue
		}
		stop()
		<-rung
		return interruption(err) || err == nil && (!woke.Valid || woke.Int64 == 1), b.unless(err)
	}
}

// unless returns err if it is not an interruption.
func (b *bell) unless(err error) error {
	if interruption(err) {
		return nil
	}
	return err
}

func interruption(err error) bool { return code(err) == interrupted }

// rest returns the statement that does nothing for so long, unless a condition
// holds. Woke tells: 1 from a keeper and nothing from another says that it was
// interrupted, where that is no error; 1 from another, that it is the keeper.
func (b *bell) rest(unless string, args []any, long time.Duration, woke *sql.NullInt64) *item {
	it := &item{rows: true, row: func(scan func(...any) error) error { return scan(woke) }}
	if b.keeper {
		it.text = "SELECT SLEEP(IF(" + unless + ", 0, ?))"
		it.args = append(args, long.Seconds())
	} else {
		it.text = "SELECT IF(" + unless + ", 0, GET_LOCK(?, ?))"
		it.args = append(args, parkingLot, int64(long.Seconds()))
	}
	return it
}

// listen sleeps and reads messages until the connection ends.
func (b *bell) listen(ctx context.Context, c *conn) {
	var done []string // read, and not removed yet
	for ctx.Err() == nil {
		limit, cancel := context.WithTimeout(ctx, nap+napGrace)
		read, err := b.sleep(limit, c, done)
		cancel()
		switch {
		case err == nil:
			done = done[:0]
		case !interruption(err) && !slow(err):
			return
		}
		for _, m := range read {
			switch {
			case slices.Contains(done, m.id):
			case m.place.State == 0:
				b.d.r.Moved("", driver.Place{}) // something was said that cannot be read
			default:
				b.d.r.Moved(m.id, m.place)
			}
			done = append(done, m.id)
		}
	}
}

// slow says whether the server ended a statement because of its own limits on
// how long one may take.
func slow(err error) bool {
	n := code(err)
	return n == 3024 || n == 1969
}

// message is one row of the table of messages.
type message struct {
	id    string
	place driver.Place
}

// messageOf reads a row, which another client wrote. One that no client can have
// meant has no state.
func messageOf(id string, state, token int64) message {
	switch {
	case state == int64(driver.Held) && token > 0:
		return message{id, driver.Place{State: driver.Held, Token: uint64(token)}}
	case state == int64(driver.Gone):
		return message{id, driver.Place{State: driver.Gone}}
	}
	return message{id: id}
}

// sleep removes messages that were read, sleeps as long as there are no new
// ones, and reads them. A ring interrupts it. One that comes before the sleep
// has begun is not lost: its message is there by then, and nobody sleeps.
func (b *bell) sleep(ctx context.Context, c *conn, done []string) (read []message, err error) {
	post, name := b.d.opt.prefix()+"post", b.d.r.Name
	var items []*item
	if len(done) > 0 {
		args := []any{[]byte(name)}
		for _, id := range done {
			args = append(args, []byte(id))
		}
		list := strings.TrimSuffix(strings.Repeat("?, ", len(done)), ", ")
		items = append(items, &item{text: "DELETE FROM " + post + " WHERE wake = ? AND id IN (" + list + ")", args: args})
	}
	var woke sql.NullInt64
	items = append(items, b.rest("EXISTS(SELECT 1 FROM "+post+" WHERE wake = ?)", []any{[]byte(name)}, nap, &woke))
	items = append(items, &item{text: "SELECT id, state, token FROM " + post + " WHERE wake = ?", args: []any{[]byte(name)}, rows: true,
		row: func(scan func(...any) error) error {
			var id string
			var state, token int64
			err := scan(&id, &state, &token)
			if err == nil {
				read = append(read, messageOf(id, state, token))
			}
			return err
		}})
	err = c.run(ctx, false, items...)
	b.keeper = b.keeper || woke.Int64 == 1
	return read, err
}
