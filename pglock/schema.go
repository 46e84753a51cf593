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
		Later: o.later,
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
	out = append(out, placed(o, lines.Schema())...)
	return append(out, fmt.Sprintf("INSERT INTO %sstore (one, layout, boot, purged) VALUES (1, %d, %s, 0)", o.tables(), lines.Layout(), id))
}

// placed gives names of new indexes without a schema: an index goes where its
// table is.
func placed(o *Options, stmts []string) []string {
	for i, stmt := range stmts {
		stmts[i] = strings.Replace(stmt, "INDEX "+o.tables(), "INDEX "+o.prefix(), 1)
	}
	return stmts
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

// Create implements [sqlline.Site].
func (s *site) Create(ctx context.Context) error {
	there := false
	look := &sqlline.Stmt{Text: &sqlline.Text{SQL: "SELECT 1::bigint WHERE to_regclass('" + s.opt.tables() + "store') IS NOT NULL"}}
	look.Row = func(func(...any) error) error { there = true; return nil }
	err := s.alone(ctx, look, func() []string {
		if there {
			return nil
		}
		return ddl(&s.opt, s.r.Lines, "'"+rand.Text()+"'")
	})
	if code(err) == noRights {
		return driver.Errorf(driver.Refused, "the tables of Holdfast are missing, and this user may not make them; "+
			"let somebody who may run what `holdfast schema postgres` prints: %w", err)
	}
	return err
}

// Migrate implements [sqlline.Site], all of it in one transaction. While it
// waits for a table, requests wait behind it, so it gives up in time.
func (s *site) Migrate(ctx context.Context, from int64) error {
	lines := s.r.Lines
	var found sqlline.Found
	err := s.alone(ctx, lines.Store(&found), func() []string {
		// Another client may have been first.
		if found.Layout < 1 || found.Layout >= lines.Layout() {
			return nil
		}
		limit := fmt.Sprintf("SET LOCAL lock_timeout = %d", patience.Milliseconds())
		return append([]string{limit}, placed(&s.opt, lines.Changes(found.Layout))...)
	})
	if code(err) == noRights {
		return driver.Errorf(driver.Refused, "the tables of Holdfast have layout %d, this version needs layout %d, and this user may not change them; "+
			"let their owner run: %s; %w", from, lines.Layout(), strings.Join(placed(&s.opt, lines.Changes(from)), "; "), err)
	}
	return err
}

// alone runs statements in one transaction, of which there is one at a time: an
// advisory lock keeps others out until its end. The statements are asked for
// when it is held and look has run; without any, nothing is done.
func (s *site) alone(ctx context.Context, look *sqlline.Stmt, stmts func() []string) error {
	exec := func(c *link, commits bool, texts ...string) error {
		b := newRound(ctx, nil)
		for _, text := range texts {
			b.plain(text)
		}
		b.done = commits
		return b.run(c.PgConn, commits)
	}
	return s.inConn(ctx, func(c *link) error {
		t := &tx{c: c, began: true}
		defer t.undo(ctx)
		err := exec(c, false, textBegin, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", advisory))
		if err != nil {
			return err
		}
		b := newRound(ctx, nil)
		b.add(look)
		if err := b.run(c.PgConn, false); err != nil {
			return err
		}
		texts := stmts()
		if len(texts) == 0 {
			return nil
		}
		return exec(c, true, append(texts, textDone)...)
	})
}

// advisory is the key of the advisory lock under which tables are made and
// changed:
// "holdfast" in ASCII.
const advisory = 0x686f6c6466617374
