package pglock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// lockTimeout is the time for which a request without a deadline waits for a
// row that somebody else has locked. A request with a deadline waits for the
// greater part of the time left, so that the server gives up before the client
// does, and reports why.
const lockTimeout = 5 * time.Second

// requestTime is the longest time that a request without a deadline waits for a
// connection and the server's answer. It is longer than a reachable server
// needs to give up.
const requestTime = 2*lockTimeout + 2*time.Second

// idleMax is the longest time that the server lets a transaction of this driver
// be idle before it ends the connection: a process that was stopped inside a
// transaction must not keep a queue locked.
const idleMax = 2 * time.Second

// The statements that surround those of a request. One batch of statements is
// one round trip.
//
// Statements are sent with the types of their arguments and without a name, so
// that they leave nothing in a connection that a pooler would have to know of;
// but see [database.prepare].
const (
	textBegin    = "BEGIN ISOLATION LEVEL READ COMMITTED"
	textCommit   = "COMMIT"
	textRollback = "ROLLBACK"
	// textLimits sets limits for the transaction in which it runs.
	textLimits = "SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true), " +
		"set_config('idle_in_transaction_session_timeout', $3, true)"
)

// database is the database of one client, on a pool of connections.
type database struct {
	pool       *pgxpool.Pool
	spare      spare
	sockets    *sockets
	owned      bool // the driver made the pool
	opt        Options
	tables     *sqlqueue.Tables // its name is that of the driver's channel
	explicitTx atomic.Bool      // see Auto
	textOnly   atomic.Bool      // no statement is prepared, see prepare
	stmtNames  map[*sqlqueue.Text]string
	silent     func()        // is called when the server seems to be silent
	lastAnswer sqlqueue.Last // when the server last answered a request
	suspect    sqlqueue.Last // connections whose last use ended before may be dead, see track
}

// Auto implements [sqlqueue.DB]. The statement and its limits are one round
// trip, and one transaction without BEGIN and COMMIT. If the database's default
// isolation is stricter than READ COMMITTED, the server may report a
// serialization failure for such a transaction. From then on the driver uses
// whole transactions.
func (d *database) Auto(ctx context.Context, s *sqlqueue.Stmt) error {
	ctx, cancel := sqlqueue.Within(ctx, requestTime)
	defer cancel()
	if !d.explicitTx.Load() {
		err := d.inConn(ctx, func(c *pooledConn) error {
			b := newRound(ctx, c.names)
			b.limits()
			b.add(s)
			return b.run(c.PgConn, true)
		})
		if code(err) != serializationFailure {
			return err
		}
		d.explicitTx.Store(true)
	}
	return d.Tx(ctx, func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error) { return []*sqlqueue.Stmt{s}, nil })
}

// Tx implements [sqlqueue.DB]. It sends BEGIN with the first statements, and
// COMMIT with the last. If f itself sends nothing, the last statements are one
// transaction without BEGIN and COMMIT, see Auto.
func (d *database) Tx(ctx context.Context, f func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error)) error {
	ctx, cancel := sqlqueue.Within(ctx, requestTime)
	defer cancel()
	notifies := false
	err := d.tx(ctx, trackNotify(f, false, &notifies), d.explicitTx.Load())
	if code(err) == serializationFailure && d.explicitTx.CompareAndSwap(false, true) {
		err = d.tx(ctx, trackNotify(f, false, &notifies), true)
	}
	if notifies && refusedByServer(ctx, err) {
		err = d.tx(ctx, trackNotify(f, true, &notifies), d.explicitTx.Load())
	}
	return err
}

func (d *database) tx(ctx context.Context, f func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error), explicitTx bool) error {
	return d.inConn(ctx, func(c *pooledConn) error {
		t := &tx{c: c}
		last, err := f(t)
		switch {
		case err != nil:
		case t.began && len(last) == 0 && !t.wrote:
			// The transaction wrote nothing, so an answer to its end is not
			// needed.
			t.rollback(ctx)
			return nil
		case !t.began && !explicitTx:
			if len(last) > 0 {
				b := newRound(ctx, c.names)
				b.limits()
				b.add(last...)
				err = b.run(c.PgConn, true)
			}
		case t.began || len(last) > 0:
			b := t.round(ctx)
			b.add(last...)
			b.addText(textCommit)
			b.commits = true
			err = b.run(c.PgConn, true)
		}
		if err != nil {
			t.rollback(ctx)
		}
		return err
	})
}

// pooledConn is a connection of the pool while one request uses it.
type pooledConn struct {
	*pgconn.PgConn
	names map[*sqlqueue.Text]string // of the statements prepared there
}

// tx is an open transaction.
type tx struct {
	c     *pooledConn
	began bool
	wrote bool
}

// Do implements [sqlqueue.Tx].
func (t *tx) Do(ctx context.Context, stmts ...*sqlqueue.Stmt) error {
	b := t.round(ctx)
	for _, s := range stmts {
		t.wrote = t.wrote || s.Row == nil
	}
	b.add(stmts...)
	return b.run(t.c.PgConn, false)
}

func (t *tx) round(ctx context.Context) *round {
	b := newRound(ctx, t.c.names)
	if !t.began {
		t.began = true
		b.addText(textBegin)
		b.limits()
	}
	return b
}

// rollback ends the transaction if it is still open. If that fails, the pool
// closes the connection, which also ends the transaction.
func (t *tx) rollback(ctx context.Context) {
	if t.c.IsClosed() || t.c.TxStatus() == 'I' {
		return
	}
	b := newRound(ctx, nil)
	b.addText(textRollback)
	_ = b.run(t.c.PgConn, false)
}

// inConn runs f on a connection of the pool.
func (d *database) inConn(ctx context.Context, f func(*pooledConn) error) error {
	if err := d.tables.CheckOpen(ctx); err != nil {
		return err
	}
	began := time.Now()
	c, err := d.acquire(ctx)
	if err != nil {
		// The pool pings a connection that was idle. Without idle ones the request has
		// waited for a connection that is in use or being made, which tells nothing.
		if d.pool.Stat().IdleConns() > 0 && sqlqueue.Silent(ctx, began) {
			d.afterSilence(sqlqueue.InstantOf(began))
		}
		return d.notAcquired(ctx, err)
	}
	if sqlqueue.TooLate(ctx, began) {
		c.Release()
		return d.notInTime(context.DeadlineExceeded)
	}
	l := &pooledConn{PgConn: c.Conn().PgConn()}
	ready, err := d.prepare(ctx, l.PgConn)
	if ready {
		l.names = d.stmtNames
	}
	began = time.Now()
	if err == nil {
		err = f(l)
	}
	d.reactTo(err)
	d.release(c, err)
	switch {
	case err == nil || code(err) != "":
		d.lastAnswer.Record(sqlqueue.InstantOf(time.Now()))
	case sqlqueue.Silent(ctx, began):
		d.afterSilence(sqlqueue.InstantOf(began))
	}
	return err
}

// afterSilence closes idle connections after one connection led nowhere since an
// instant: a device between this client and the server may have forgotten them. A
// hold must not be lost because it is renewed on one dead connection after the
// other. Connections that have answered since then stay, and so does the one for LISTEN
// if any has: the server is slow, for one that waits for a row or for all, and would
// have to serve new connections as well.
func (d *database) afterSilence(since sqlqueue.Instant) {
	d.suspect.Record(since)
	if d.lastAnswer.Load() < since {
		d.spare.reset()
		d.silent()
	}
}

// release gives a connection back. If its server takes no writes, release
// closes it, and with it all others of the driver's own pool: new connections
// may lead to another server.
func (d *database) release(c *pgxpool.Conn, err error) {
	if code(err) == readOnly {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = c.Conn().Close(ctx)
		if d.owned {
			d.pool.Reset()
		}
	}
	if d.owned {
		d.noteUse(c.Conn())
	}
	c.Release()
}

// round is a batch of statements that is sent, and answered, in one round trip.
type round struct {
	ctx     context.Context
	batch   pgconn.Batch
	names   map[*sqlqueue.Text]string // of prepared statements
	stmts   []*sqlqueue.Stmt          // nil for those whose answer is ignored
	commits bool                      // the last statement is COMMIT
}

func newRound(ctx context.Context, names map[*sqlqueue.Text]string) *round {
	return &round{ctx: ctx, names: names}
}

func (b *round) addText(text string) {
	b.batch.ExecParams(text, nil, nil, nil, nil)
	b.stmts = append(b.stmts, nil)
}

// limits adds the statement that bounds the transaction's waits and run time.
func (b *round) limits() {
	wait, all, idle := lockTimeout, 2*lockTimeout, idleMax
	if end, ok := b.ctx.Deadline(); ok {
		left := time.Until(end)
		wait, all, idle = min(wait, left*8/10), min(all, left*9/10), min(idle, left) // nobody goes on after the deadline
	}
	values := make([][]byte, 0, 3)
	for _, limit := range []time.Duration{wait, all, idle} {
		values = append(values, strconv.AppendInt(nil, max(1, limit.Milliseconds()), 10))
	}
	if b.names != nil {
		b.batch.ExecPrepared(limitsName, values, nil, nil)
	} else {
		b.batch.ExecParams(textLimits, values, nil, nil, nil)
	}
	b.stmts = append(b.stmts, nil)
}

var binaryFormat = []int16{pgtype.BinaryFormatCode}

func (b *round) add(stmts ...*sqlqueue.Stmt) {
	for _, s := range stmts {
		b.addOne(s)
	}
}

func (b *round) addOne(s *sqlqueue.Stmt) {
	args := s.Values()
	values := make([][]byte, len(args))
	types := make([]uint32, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case int64:
			values[i], types[i] = binary.BigEndian.AppendUint64(nil, uint64(v)), pgtype.Int8OID
		case int:
			values[i], types[i] = binary.BigEndian.AppendUint64(nil, uint64(v)), pgtype.Int8OID
		case string:
			values[i], types[i] = []byte(v), pgtype.ByteaOID
		case []byte:
			values[i], types[i] = v, pgtype.ByteaOID
		default:
			panic(fmt.Sprintf("pglock: argument of type %T", arg))
		}
		if values[i] == nil {
			values[i] = []byte{} // nil would be NULL
		}
	}
	if name := b.names[s.Text]; name != "" {
		b.batch.ExecPrepared(name, values, binaryFormat, binaryFormat)
	} else {
		b.batch.ExecParams(s.Text.SQL, values, types, binaryFormat, binaryFormat)
	}
	b.stmts = append(b.stmts, s)
}

// run sends all statements and reads the answers. Commits says that the round
// trip ends the transaction: if an answer is missing, the outcome is then
// unknown.
func (b *round) run(c *pgconn.PgConn, commits bool) error {
	open := !c.IsClosed()
	results := c.ExecBatch(b.ctx, &b.batch)
	var rowErr error
	end := ""
	for i := 0; results.NextResult(); i++ {
		r := results.ResultReader()
		for r.NextRow() {
			if i < len(b.stmts) && b.stmts[i] != nil && b.stmts[i].Row != nil && rowErr == nil {
				rowErr = b.stmts[i].Row(scanner{r}.scan)
			}
		}
		tag, err := r.Close()
		if err == nil {
			end = tag.String()
		}
	}
	if err := results.Close(); err != nil {
		if open && errors.Is(err, pgconn.ErrConnClosed) {
			// The connection broke after the statements were sent. The client
			// library calls that safe to repeat, as if it had been closed before.
			err = errBroken
		}
		return classify(b.ctx, err, commits)
	}
	if rowErr != nil {
		return driver.Wrap(driver.Refused, rowErr)
	}
	if b.commits && end != textCommit {
		return driver.Errorf(driver.NotDone, "postgresql: the transaction ended with %s", end)
	}
	return nil
}

// errBroken is the error of a connection that broke before the answer had come.
var errBroken = errors.New("the connection broke before the answer")

// scanner reads the columns of a row: 64-bit integers, and bytes.
type scanner struct{ r *pgconn.ResultReader }

func (s scanner) scan(dest ...any) error {
	values := s.r.Values()
	if len(values) != len(dest) {
		return fmt.Errorf("postgresql: %d columns instead of %d", len(values), len(dest))
	}
	for i, v := range values {
		switch p := dest[i].(type) {
		case *int64:
			if len(v) != 8 {
				return fmt.Errorf("postgresql: column %s is not a BIGINT", s.r.FieldDescriptions()[i].Name)
			}
			*p = int64(binary.BigEndian.Uint64(v))
		case *string:
			*p = string(v)
		case *[]byte:
			*p = append([]byte{}, v...)
		default:
			return fmt.Errorf("postgresql: cannot read a %T", p)
		}
	}
	return nil
}
