package pglock

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// A request without a deadline waits this long for a row that somebody else
// has locked; one with a deadline for the greater part of what is left, so that
// the server gives up before the client does, and says so.
const patience = 5 * time.Second

// idleMax is how long the server lets a transaction of ours be idle before it
// ends the connection: a process that was stopped in the middle of one must
// not keep a line locked.
const idleMax = 2 * time.Second

// One batch of statements is one round trip.
//
// Statements are sent with the types of their arguments and without a name, so
// nothing is left in a connection that a pooler would have to know of; but see
// [Driver.prepare].
const (
	textBegin = "BEGIN ISOLATION LEVEL READ COMMITTED"
	textDone  = "COMMIT"
	textUndo  = "ROLLBACK"
	// textLimits holds for the transaction it runs in.
	textLimits = "SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true), " +
		"set_config('idle_in_transaction_session_timeout', $3, true)"
)

// Auto implements [sqlline.DB]. The statement and its limits are one round
// trip, and one transaction without further words. Where that is not READ
// COMMITTED because of the database's settings, the server may say that it
// could not serialise; such a database gets whole transactions from then on.
func (d *Driver) Auto(ctx context.Context, s *sqlline.Stmt) error {
	if !d.whole.Load() {
		err := d.inConn(ctx, func(c *link) error {
			b := newRound(ctx, c.names)
			b.limits()
			b.add(s)
			return b.run(c.PgConn, true)
		})
		if code(err) != serializationFailure {
			return err
		}
		d.whole.Store(true)
	}
	return d.Tx(ctx, func(sqlline.Tx) ([]*sqlline.Stmt, error) { return []*sqlline.Stmt{s}, nil })
}

// Tx implements [sqlline.DB]. It sends its beginning with the first statements,
// and its end with the last. When these are all, they are one transaction
// without further words, see Auto.
func (d *Driver) Tx(ctx context.Context, f func(sqlline.Tx) ([]*sqlline.Stmt, error)) error {
	err := d.tx(ctx, f, d.whole.Load())
	if code(err) == serializationFailure && d.whole.CompareAndSwap(false, true) {
		err = d.tx(ctx, f, true)
	}
	return err
}

func (d *Driver) tx(ctx context.Context, f func(sqlline.Tx) ([]*sqlline.Stmt, error), whole bool) error {
	return d.inConn(ctx, func(c *link) error {
		t := &tx{c: c}
		last, err := f(t)
		switch {
		case err != nil:
		case t.began && len(last) == 0 && !t.wrote:
			// Nothing to write: whether the end arrives makes no difference.
			t.undo(ctx)
			return nil
		case !t.began && !whole:
			if len(last) > 0 {
				b := newRound(ctx, c.names)
				b.limits()
				b.add(last...)
				err = b.run(c.PgConn, true)
			}
		case t.began || len(last) > 0:
			b := t.round(ctx)
			b.add(last...)
			b.plain(textDone)
			b.done = true
			err = b.run(c.PgConn, true)
		}
		if err != nil {
			t.undo(ctx)
		}
		return err
	})
}

// link is a connection of the pool while one request has it.
type link struct {
	*pgconn.PgConn
	names map[*sqlline.Text]string // of what is prepared there
}

// tx is an open transaction.
type tx struct {
	c     *link
	began bool
	wrote bool
}

// Do implements [sqlline.Tx].
func (t *tx) Do(ctx context.Context, stmts ...*sqlline.Stmt) error {
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
		b.plain(textBegin)
		b.limits()
	}
	return b
}

// undo ends the transaction if it is still open. If that fails, the pool
// closes the connection, which ends it as well.
func (t *tx) undo(ctx context.Context) {
	if t.c.IsClosed() || t.c.TxStatus() == 'I' {
		return
	}
	b := newRound(ctx, nil)
	b.plain(textUndo)
	_ = b.run(t.c.PgConn, false)
}

// inConn runs f on a connection of the pool.
func (d *Driver) inConn(ctx context.Context, f func(*link) error) error {
	if err := d.r.Before(ctx); err != nil {
		return err
	}
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return d.notAcquired(ctx, err)
	}
	l := &link{PgConn: c.Conn().PgConn()}
	ready, err := d.prepare(ctx, l.PgConn)
	if ready {
		l.names = d.names
	}
	if err == nil {
		err = f(l)
	}
	d.judge(err)
	d.release(c, err)
	return err
}

// release gives a connection back. One that leads to a server that cannot be
// written is closed, and all others of our own pool are: new ones may lead to
// another server.
func (d *Driver) release(c *pgxpool.Conn, err error) {
	if code(err) == readOnly {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = c.Conn().Close(ctx)
		if d.owned {
			d.pool.Reset()
		}
	}
	c.Release()
}

// round is what goes to the server, and comes back, in one go.
type round struct {
	ctx   context.Context
	batch pgconn.Batch
	names map[*sqlline.Text]string // of prepared statements
	stmts []*sqlline.Stmt          // nil for those whose answer says nothing
	done  bool                     // the last one is COMMIT
}

func newRound(ctx context.Context, names map[*sqlline.Text]string) *round {
	return &round{ctx: ctx, names: names}
}

func (b *round) plain(text string) {
	b.batch.ExecParams(text, nil, nil, nil, nil)
	b.stmts = append(b.stmts, nil)
}

// limits says how long the transaction may wait and run.
func (b *round) limits() {
	wait, all := patience, 2*patience
	if end, ok := b.ctx.Deadline(); ok {
		left := time.Until(end)
		wait, all = min(wait, left*8/10), min(all, left*9/10)
	}
	idle := min(idleMax, 2*all)
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

func (b *round) add(stmts ...*sqlline.Stmt) {
	for _, s := range stmts {
		b.one(s)
	}
}

func (b *round) one(s *sqlline.Stmt) {
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

// run sends everything and reads the answers. Commits says that the round trip
// ends the transaction, so that an answer that is missing leaves it unknown
// whether that took place.
func (b *round) run(c *pgconn.PgConn, commits bool) error {
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
		return classify(b.ctx, err, commits)
	}
	if rowErr != nil {
		return driver.Wrap(driver.Refused, rowErr)
	}
	if b.done && end != textDone {
		return driver.Errorf(driver.NotDone, "postgresql: the transaction ended with %s", end)
	}
	return nil
}

// scanner reads the columns of a row: numbers of 64 bits, and bytes.
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
