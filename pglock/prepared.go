package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Parsing and planning these statements takes the server longer than running
// them. The driver therefore prepares the most frequent statements on its own
// connections that lead to the server itself, once and in one round trip. It
// does not prepare behind a pooler, which would have to know of prepared
// statements, nor in a pool that was passed to New, whose other users do not
// expect them.

// preparedKey is the key under which a connection records whether it has the
// statements.
const preparedKey = "holdfast"

// prepare makes sure that a connection has the statements, if it can have them.
// If it cannot, that is no error: statements are then sent as text. It returns
// an error if the connection broke.
func (d *database) prepare(ctx context.Context, c *pgconn.PgConn) (ok bool, err error) {
	if !d.owned || d.textOnly.Load() || !d.tables.Ready() {
		return false, nil
	}
	if ok, asked := c.CustomData()[preparedKey].(bool); asked {
		return ok, nil
	}
	err = d.prepareAll(ctx, c)
	if c.IsClosed() {
		return false, connError(ctx, driver.Unavailable, err)
	}
	c.CustomData()[preparedKey] = err == nil
	return err == nil, nil
}

func (d *database) prepareAll(ctx context.Context, c *pgconn.PgConn) (err error) {
	p := c.StartPipeline(ctx)
	defer func() {
		if e := p.Close(); err == nil {
			err = e
		}
	}()
	p.SendQueryParams("SELECT pg_backend_pid()::bigint", nil, nil, nil, binaryFormat)
	p.SendPrepare(limitsName, textLimits, nil)
	for text, name := range d.stmtNames {
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
				d.textOnly.Store(true)
				return fmt.Errorf("postgresql: process %d answered, not %d: a pooler is between", pid, c.PID())
			}
		}
	}
}

// limitsName is the name of textLimits.
var limitsName = nameOf(textLimits)

// nameOf returns the name of a prepared statement, made from its text: clients
// of several versions, or of several tables, may come to share a connection of
// the server.
func nameOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "holdfast_" + hex.EncodeToString(sum[:8])
}

// namesOf returns names for the texts.
func namesOf(texts []*sqlqueue.Text) map[*sqlqueue.Text]string {
	names := make(map[*sqlqueue.Text]string)
	for _, text := range texts {
		names[text] = nameOf(text.SQL)
	}
	return names
}

// notPrepared reports whether a statement failed because it is not prepared, or
// because its meaning has changed since: somebody discards the connections'
// statements, or created the tables anew.
func notPrepared(err error) bool {
	c := code(err)
	return c == "26000" || c == "0A000"
}
