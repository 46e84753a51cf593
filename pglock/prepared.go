package pglock

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// Parsing and planning take the server longer than running these statements
// does. On connections of our own that lead to the server itself, what most
// requests consist of is therefore prepared, once and in one round trip; a
// pooler would have to know of it, and a pool that was given may be used by
// others who do not expect it.

// preparedKey is where a connection keeps whether it has the statements.
const preparedKey = "holdfast"

// prepare sees to it that a connection has the statements, if it is one that
// can. That it cannot is no error: statements then travel as text. It returns
// an error when the connection broke.
func (d *Driver) prepare(ctx context.Context, c *pgconn.PgConn) (ok bool, err error) {
	if !d.owned || d.plain.Load() || !d.r.Ready() {
		return false, nil
	}
	if ok, asked := c.CustomData()[preparedKey].(bool); asked {
		return ok, nil
	}
	err = d.prepareAll(ctx, c)
	if c.IsClosed() {
		return false, lost(ctx, driver.Unavailable, err)
	}
	c.CustomData()[preparedKey] = err == nil
	return err == nil, nil
}

func (d *Driver) prepareAll(ctx context.Context, c *pgconn.PgConn) (err error) {
	p := c.StartPipeline(ctx)
	defer func() {
		if e := p.Close(); err == nil {
			err = e
		}
	}()
	p.SendQueryParams("SELECT pg_backend_pid()::bigint", nil, nil, nil, binaryFormat)
	p.SendPrepare(limitsName, textLimits, nil)
	for text, name := range d.names {
		p.SendPrepare(name, text.SQL, nil)
	}
	if err := p.Sync(); err != nil {
		return err
	}
	for {
		switch r, err := p.GetResults(); r := r.(type) {
		case nil:
			if err != nil {
				return err
			}
		case *pgconn.PipelineSync:
			return nil
		case *pgconn.ResultReader:
			pid := int64(0)
			for r.NextRow() {
				if err := (scanner{r}).scan(&pid); err != nil {
					return err
				}
			}
			if _, err := r.Close(); err != nil {
				return err
			}
			if uint32(pid) != c.PID() {
				d.plain.Store(true)
				return fmt.Errorf("postgresql: process %d answers for %d: a pooler", pid, c.PID())
			}
		}
	}
}

// limitsName is what textLimits is prepared as.
const limitsName = "holdfast_limits"

// namesOf gives names to what is worth preparing.
func namesOf(texts []*sqlline.Text) map[*sqlline.Text]string {
	names := make(map[*sqlline.Text]string)
	for i, text := range texts {
		names[text] = fmt.Sprintf("holdfast_%d", i)
	}
	return names
}

// notPrepared says whether a statement failed because it is not prepared, or is
// not any more what it was: somebody has our connections forget statements, or
// made the tables anew.
func notPrepared(err error) bool {
	c := code(err)
	return c == "26000" || c == "0A000"
}
