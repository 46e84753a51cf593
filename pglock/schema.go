package pglock

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// clockNow is the server's clock, in whole microseconds of UTC, whatever the
// session's time zone is. It is read when the expression is evaluated.
const clockNow = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// dialect returns the dialect of PostgreSQL. Columns that are text in other
// databases are bytes here: bytes compare byte for byte under every collation,
// are the same in every encoding of the database, and may contain zero bytes.
func dialect(o *Options, self string, tell func([]sqlqueue.Push) []*sqlqueue.Stmt) sqlqueue.Dialect {
	now := clockNow
	if o.clock != "" {
		now = o.clock
	}
	return sqlqueue.Dialect{
		Now:        now,
		Tick:       fmt.Sprintf("greatest((%s - %d) / 25, 1)", now, driver.Epoch.UnixMicro()),
		Numbered:   true,
		Greatest:   "greatest",
		ForUpdate:  " FOR UPDATE",
		SkipLocked: " FOR UPDATE SKIP LOCKED",
		Prefix:     o.tables(),
		Types: sqlqueue.Types{
			Int: "bigint", Key: "bytea", Bytes: "bytea", ID: "bytea", Owner: "bytea", Text: "bytea", Wake: "bytea",
			// Free space in the pages lets a row be updated in place, without a
			// change of the index.
			Table: " WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200)",
		},
		ExtraChanges: o.later,
		Notify:       tell,
		NotifyGrant:  grant,
		Self:         self,
	}
}

// ddl returns the statements that create the tables.
func ddl(o *Options, queues *sqlqueue.Queues, id string) []string {
	var out []string
	if o.Schema != "" {
		out = append(out, "CREATE SCHEMA IF NOT EXISTS "+quote(o.Schema))
	}
	out = append(out, unqualifyIndexes(o, queues.Schema())...)
	return append(out, fmt.Sprintf("INSERT INTO %sstore (one, layout, boot, purged) VALUES (1, %d, %s, 0)", o.tables(), queues.Layout(), id))
}

// unqualifyIndexes removes the schema from the names of new indexes: an index
// goes where its table is.
func unqualifyIndexes(o *Options, stmts []string) []string {
	for i, stmt := range stmts {
		stmts[i] = strings.Replace(stmt, "INDEX "+o.tables(), "INDEX "+o.prefix(), 1)
	}
	return stmts
}

// Schema returns the statements that create the tables, as text for psql. It is
// for administrators of programs that may not create them. A nil o is the zero
// Options. Schema returns an error if o is not valid.
func Schema(o *Options) (string, error) {
	if o == nil {
		o = new(Options)
	}
	if err := o.check(); err != nil {
		return "", driver.Wrap(driver.Refused, err)
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	queues := sqlqueue.New(dialect(o, "", nil))
	for _, stmt := range ddl(o, queues, "convert_to(md5(random()::text || clock_timestamp()::text), 'UTF8')") {
		b.WriteString(stmt + ";\n")
	}
	b.WriteString(queues.MarkSchema() + ";\nCOMMIT;\n")
	fmt.Fprintf(&b, "-- Rights of the user under whom programs lock, here app:\n")
	if o.Schema != "" {
		fmt.Fprintf(&b, "-- GRANT USAGE ON SCHEMA %s TO app;\n", quote(o.Schema))
	}
	t := o.tables()
	fmt.Fprintf(&b, "-- GRANT SELECT, INSERT, UPDATE, DELETE ON %[1]sstore, %[1]sline, %[1]sticket, %[1]sgrave, %[1]smark TO app;\n", t)
	return b.String(), nil
}

// Missing implements [sqlqueue.Database].
func (d *database) Missing(err error) bool {
	c := code(err)
	return c == undefinedTable || c == undefinedSchema
}

// Create implements [sqlqueue.Database].
func (d *database) Create(ctx context.Context) error {
	exists := false
	probe := &sqlqueue.Stmt{Text: &sqlqueue.Text{SQL: "SELECT 1::bigint WHERE to_regclass('" + d.opt.tables() + "store') IS NOT NULL"}}
	probe.Row = func(func(...any) error) error { exists = true; return nil }
	err := d.exclusively(ctx, probe, func() []string {
		if exists {
			return nil
		}
		return ddl(&d.opt, d.tables.Queues, "'"+rand.Text()+"'")
	})
	if code(err) == noRights {
		return driver.Errorf(driver.Refused, "the tables of Holdfast are missing, and this user may not create them; "+
			"ask an administrator to run the output of `holdfast schema postgres`: %w", err)
	}
	return err
}

// Migrate implements [sqlqueue.Database], in one transaction. While it waits
// for a table, requests wait behind it, so that wait is limited.
func (d *database) Migrate(ctx context.Context, from int64) error {
	queues := d.tables.Queues
	var found sqlqueue.StoreRow
	err := d.exclusively(ctx, queues.Store(&found), func() []string {
		// Another client may have been first.
		if found.Layout < 1 || found.Layout >= queues.Layout() {
			return nil
		}
		limit := fmt.Sprintf("SET LOCAL lock_timeout = %d", lockTimeout.Milliseconds())
		return append([]string{limit}, unqualifyIndexes(&d.opt, queues.Changes(found.Layout))...)
	})
	if code(err) == noRights {
		return driver.Errorf(driver.Refused, "the tables of Holdfast have layout %d, this version needs layout %d, and this user may not change them; "+
			"ask their owner to run: %s; %w", from, queues.Layout(), strings.Join(unqualifyIndexes(&d.opt, queues.Changes(from)), "; "), err)
	}
	return err
}

// exclusively runs statements in one transaction, one client at a time: an
// advisory lock excludes others until its end. It calls stmts once the lock is
// held and probe has run, and does nothing if there are no statements.
func (d *database) exclusively(ctx context.Context, probe *sqlqueue.Stmt, stmts func() []string) error {
	ctx, cancel := sqlqueue.Within(ctx, schemaTime)
	defer cancel()
	exec := func(c *pooledConn, commits bool, texts ...string) error {
		b := newRound(ctx, nil)
		for _, text := range texts {
			b.addText(text)
		}
		b.commits = commits
		return b.run(c.PgConn, commits)
	}
	return d.inConn(ctx, func(c *pooledConn) error {
		t := &tx{c: c, began: true}
		defer t.rollback(ctx)
		err := exec(c, false, textBegin, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", advisoryKey))
		if err != nil {
			return err
		}
		b := newRound(ctx, nil)
		b.add(probe)
		if err := b.run(c.PgConn, false); err != nil {
			return err
		}
		texts := stmts()
		if len(texts) == 0 {
			return nil
		}
		return exec(c, true, append(texts, textCommit)...)
	})
}

// schemaTime bounds the creation and change of tables where the context has no
// deadline: another client may have the advisory lock, and large tables take a
// while.
const schemaTime = 10 * time.Minute

// advisoryKey is the key of the advisory lock under which tables are created
// and changed: "holdfast" in ASCII.
const advisoryKey = 0x686f6c6466617374
