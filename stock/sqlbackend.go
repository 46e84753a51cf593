package stock

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// sqlServers keeps shards in databases: a row for a shard, a row for a receipt. A
// request locks the shard's row, reads the receipts that it needs, runs the
// function that memory runs, and writes what has changed, in one transaction.
type sqlServers struct {
	prefix     string
	conns      []*sqlConns
	purgeEvery int // the constant, but for tests
}

// sqlBatch and sqlLinger are the bounds of a batch. A shard's transactions take
// turns, and each flushes its commit to the disk. So a batch that is sent before
// the transaction under way has ended would wait at the server, and be smaller.
const (
	sqlBatch  = 200
	sqlLinger = 50 * time.Millisecond
)

// NewSQL returns a client that keeps products in databases of PostgreSQL, MySQL or
// MariaDB, one for each server; see Open. It asks each server for its kind, and
// creates the tables if there are none. Options.Prefix begins the names of the
// tables: at most 32 lower-case letters, digits and underscores.
//
// A client takes up to eight connections of each pool, and keeps them until
// Close. Behind a pooler, each needs a session of its own. Close does not close
// the pools. NewSQL blocks until all servers have answered.
func NewSQL(ctx context.Context, o *Options, databases ...*sql.DB) (*Stock, error) {
	if len(databases) == 0 {
		return nil, errors.New("stock: no database")
	}
	options, err := o.forTables()
	if err != nil {
		return nil, err
	}
	s := &sqlServers{prefix: options.Prefix, purgeEvery: purgeEvery}
	for i, db := range databases {
		if db == nil {
			s.close()
			return nil, fmt.Errorf("stock: database %d is nil", i+1)
		}
		c, err := openConns(ctx, db)
		if err == nil {
			s.conns = append(s.conns, c)
			err = s.prepare(ctx, c)
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("stock: open server %d: %w", i+1, err)
		}
	}
	return open(s, o)
}

func (s *sqlServers) servers() int { return len(s.conns) }

func (s *sqlServers) batching() batchBounds { return batchBounds{sqlBatch, sqlLinger} }

func (s *sqlServers) close() {
	for _, c := range s.conns {
		c.close()
	}
}

func (s *sqlServers) directory(ctx context.Context, sku string) (text []byte, now int64, err error) {
	err = s.conns[0].do(ctx, func(ctx context.Context, c *sqlConn) (err error) {
		q := c.kind.query().add("SELECT "+c.kind.now+", p.directory FROM (SELECT 1 AS one) x LEFT JOIN "+s.prefix+"product p ON p.sku = ?", sku)
		if err = c.QueryRowContext(ctx, q.String(), q.args...).Scan(&now, &text); err != nil {
			return err
		}
		return c.finishReading(ctx)
	})
	return text, now, err
}

// finishReading ends a transaction that a query alone has begun.
func (c *sqlConn) finishReading(ctx context.Context) error {
	if c.kind.together {
		return nil // the query was a transaction
	}
	return c.end(ctx)
}

func (s *sqlServers) swap(ctx context.Context, sku string, from, to []byte) (ok bool, err error) {
	err = s.conns[0].do(ctx, func(ctx context.Context, c *sqlConn) error {
		const read = "SELECT directory FROM %sproduct WHERE sku = ? FOR UPDATE"
		if err := c.begin(ctx, c.kind.statement().add(fmt.Sprintf(read, s.prefix), sku).String()); err != nil {
			return err
		}
		q := c.kind.query().add(fmt.Sprintf(read, s.prefix), sku)
		var text []byte
		if err := c.QueryRowContext(ctx, q.String(), q.args...).Scan(&text); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if ok = bytes.Equal(text, from); !ok {
			return c.end(ctx)
		}
		write := c.kind.statement()
		if len(from) == 0 {
			write.add("INSERT INTO "+s.prefix+"product (sku, directory) VALUES (?, ?)", sku, to)
		} else {
			write.add("UPDATE "+s.prefix+"product SET directory = ? WHERE sku = ?", to, sku)
		}
		return c.end(ctx, write.String())
	})
	return ok && err == nil, err
}

func (s *sqlServers) ask(ctx context.Context, at shard, q request) (a answer, err error) {
	err = s.conns[at.server].do(ctx, func(ctx context.Context, c *sqlConn) (err error) {
		if q.op == opFind {
			a, err = s.find(ctx, c, at, q)
			return err
		}
		r, err := s.readShard(ctx, c, at, readAll, q.sale)
		if err != nil {
			return err
		}
		if q.op == opPlace {
			if err := r.readLastEnd(ctx); err != nil {
				return err
			}
			r.shard, a = r.shard.place(q, r.now)
			return r.write(ctx)
		}
		if r.shard == nil {
			a = answer{status: isAbsent}
			return c.end(ctx)
		}
		if err := r.lapse(ctx, q); err != nil {
			return err
		}
		a = r.shard.ask(q, r.now)
		return r.write(ctx)
	})
	if err != nil {
		return answer{}, err
	}
	return a, nil
}

// find looks a sale up, and does not wait for the shard's row: one query reads the
// state of one moment. A reservation whose lease has ended is answered as lapsed; its
// units come back when they are needed.
func (s *sqlServers) find(ctx context.Context, c *sqlConn, at shard, q request) (answer, error) {
	r, err := s.readShard(ctx, c, at, readAlone, q.sale)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: isAbsent}
	if r.shard != nil {
		a = r.shard.ask(q, r.now)
	}
	return a, c.finishReading(ctx)
}

func (s *sqlServers) sell(ctx context.Context, at shard, sales []*batchedSale) error {
	ids := make([]string, len(sales))
	for i, sale := range sales {
		ids[i] = sale.sale
	}
	return s.conns[at.server].do(ctx, func(ctx context.Context, c *sqlConn) error {
		r, err := s.readShard(ctx, c, at, readUnits, ids...)
		if err != nil {
			return err
		}
		r.shard.sellTogether(sales, r.now)
		return r.write(ctx)
	})
}
