package pglock

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// The server's clock, in whole microseconds of UTC, whatever the session's time
// zone is. It is read when the expression is evaluated.
const clockNow = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// dialect is PostgreSQL's. What is text elsewhere is bytes here: they compare
// byte for byte under every collation, are the same in every encoding of the
// database, and may contain zero bytes.
func dialect(o *Options, self string, tell func([]sqlline.Push) []*sqlline.Stmt) sqlline.Dialect {
	now := clockNow
	if o.clock != "" {
		now = o.clock
	}
	return sqlline.Dialect{
		Now:       now,
		Tick:      fmt.Sprintf("greatest((%s - %d) / 25, 1)", now, driver.Epoch.UnixMicro()),
		Numbered:  true,
		Greatest:  "greatest",
		ForUpdate: " FOR UPDATE",
		Prefix:    o.tables(),
		Types: sqlline.Types{
			Int: "bigint", Key: "bytea", Bytes: "bytea", ID: "bytea", Owner: "bytea", Text: "bytea", Wake: "bytea",
			// Room in the pages lets a row be updated where it is, without a
			// change of the index.
			Table: " WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200)",
		},
		Tell:  tell,
		Grant: "pg_notify(encode(wake, 'escape'), 'h' || token || ' ' || encode(id, 'escape'))::text",
		Self:  self,
	}
}

// ddl returns the statements that make the tables.
func ddl(o *Options, lines *sqlline.Lines, id string) []string {
	var out []string
	if o.Schema != "" {
		out = append(out, "CREATE SCHEMA IF NOT EXISTS "+quote(o.Schema))
	}
	for _, stmt := range lines.Schema() {
		// An index goes where its table is; its name has no schema.
		stmt = strings.Replace(stmt, "INDEX "+o.tables(), "INDEX "+o.prefix(), 1)
		out = append(out, stmt)
	}
	return append(out, fmt.Sprintf("INSERT INTO %sstore (one, layout, boot, purged) VALUES (1, %d, %s, 0)", o.tables(), sqlline.Layout, id))
}

// Schema returns the statements that make the tables, as text for psql, for
// those whose programs may not make them. A nil o is the zero Options. It is
// an error if o is not valid.
func Schema(o *Options) (string, error) {
	if o == nil {
		o = new(Options)
	}
	if err := o.check(); err != nil {
		return "", driver.Wrap(driver.Refused, err)
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	for _, stmt := range ddl(o, sqlline.New(dialect(o, "", nil)), "convert_to(md5(random()::text || clock_timestamp()::text), 'UTF8')") {
		b.WriteString(stmt + ";\n")
	}
	b.WriteString("COMMIT;\n")
	fmt.Fprintf(&b, "-- Rights of the user under whom programs lock, here app:\n")
	if o.Schema != "" {
		fmt.Fprintf(&b, "-- GRANT USAGE ON SCHEMA %s TO app;\n", quote(o.Schema))
	}
	t := o.tables()
	fmt.Fprintf(&b, "-- GRANT SELECT, INSERT, UPDATE, DELETE ON %[1]sstore, %[1]sline, %[1]sticket, %[1]sgrave TO app;\n", t)
	return b.String(), nil
}

// site is the database as the requests see it.
type site struct{ *Driver }

// Missing implements [sqlline.Site].
func (s *site) Missing(err error) bool {
	c := code(err)
	return c == undefinedTable || c == undefinedSchema
}

// Create implements [sqlline.Site]. An advisory lock, for the transaction
// alone, keeps two clients from making the tables at once.
func (s *site) Create(ctx context.Context) error {
	d := s.Driver
	exec := func(c *link, commits bool, texts ...string) error {
		b := newRound(ctx, nil)
		for _, text := range texts {
			b.plain(text)
		}
		b.done = commits
		return b.run(c.PgConn, commits)
	}
	err := d.inConn(ctx, func(c *link) error {
		t := &tx{c: c, began: true}
		defer t.undo(ctx)
		err := exec(c, false, textBegin, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", advisory))
		if err != nil {
			return err
		}
		there := false
		b := newRound(ctx, nil)
		s := &sqlline.Stmt{Text: &sqlline.Text{SQL: "SELECT 1::bigint WHERE to_regclass('" + d.opt.tables() + "store') IS NOT NULL"}}
		s.Row = func(func(...any) error) error { there = true; return nil }
		b.add(s)
		if err := b.run(c.PgConn, false); err != nil || there {
			return err
		}
		return exec(c, true, append(ddl(&d.opt, d.r.Lines, "'"+rand.Text()+"'"), textDone)...)
	})
	if code(err) == noRights {
		return driver.Errorf(driver.Refused, "the tables of Holdfast are missing, and this user may not make them; "+
			"let somebody who may run what `holdfast schema postgres` prints: %w", err)
	}
	return err
}

// advisory is the key of the advisory lock under which tables are made:
// "holdfast" in ASCII.
const advisory = 0x686f6c6466617374
