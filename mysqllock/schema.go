package mysqllock

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// The server's clock in microseconds, whatever the session's time zone is: when
// the statement began, also within a packet of several.
const clockNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// joinText is the upsert that decides an uncontended join; see
// sqlline.Dialect.Join. Its result is the id of the answer: the token, or 0.
//
// Assignments are evaluated from left to right, each with what those before it
// have changed; under MariaDB's SIMULTANEOUS_ASSIGNMENT they are not. The
// order is such that both come to the same.
const joinText = `
	INSERT INTO {line} (k, name, lim, used, held, waiting, seq, turn, token, due, graves,
		h_id, h_owner, h_units, h_place, h_token, h_keep, h_until, h_wake, h_meta)
	SELECT ?, ?, ?, ?, 1, 0, 1, 1, {note}(n.token), 9223372036854775807, 0,
		?, ?, ?, 1, n.token, ?, {now} + ?, ?, ?
	FROM (SELECT {max}({tick}, ?, purged + 1) AS token FROM {store}) n
	ON DUPLICATE KEY UPDATE `

// free is the condition under which an existing line is taken.
const free = "{line}.held = 0 AND {line}.waiting = 0 AND {line}.graves = 0 AND {line}.name = VALUES(name)"

// join puts joinText and its assignments together.
func join() string {
	var b strings.Builder
	b.WriteString(joinText)
	set := func(column, value string) {
		fmt.Fprintf(&b, "%s = IF(%s AND {line}.token < 9223372036854775807, %s, {line}.%s), ", column, free, value, column)
	}
	for _, column := range []string{"h_id", "h_owner", "h_units", "h_keep", "h_until", "h_wake", "h_meta", "lim", "used", "due"} {
		set(column, "VALUES("+column+")")
	}
	for _, column := range []string{"h_place", "seq", "turn"} {
		set(column, "1")
	}
	const next = "{max}({line}.token + 1, VALUES(token))"
	set("h_token", next)
	fmt.Fprintf(&b, "token = {max}({line}.token, {note}(IF(%s AND {line}.token < 9223372036854775807, %s, 0))), ", free, next)
	// Here the token may be the new one already, and the last there is.
	fmt.Fprintf(&b, "held = IF(%s AND ({line}.token < 9223372036854775807 OR h_id = VALUES(h_id)), 1, {line}.held)", free)
	return b.String()
}

// dialect is that of MySQL 8 and MariaDB. All text is bytes: they compare byte
// for byte under every collation, and are the same in every character set.
func dialect(o *Options, tell func([]sqlline.Push) []*sqlline.Stmt) sqlline.Dialect {
	now := clockNow
	if o.clock != "" {
		now = o.clock
	}
	return sqlline.Dialect{
		Now:         now,
		Tick:        fmt.Sprintf("greatest((%s - %d) DIV 25, 1)", now, driver.Epoch.UnixMicro()),
		Greatest:    "greatest",
		ForUpdate:   " FOR UPDATE",
		Ignore:      "ON DUPLICATE KEY UPDATE k = VALUES(k)",
		Bury:        "ON DUPLICATE KEY UPDATE until = VALUES(until)",
		Join:        join(),
		NoReturning: true,
		Note:        "LAST_INSERT_ID",
		Batch:       999,
		Prefix:      o.prefix(),
		NoPartial:   true,
		Types: sqlline.Types{
			Int: "bigint", Key: "binary(32)", Bytes: "varbinary(4096)", ID: "varbinary(128)", Owner: "varbinary(256)",
			Text: "varbinary(4096)", Wake: "varbinary(64)",
			Table: tableEnd,
		},
		Later: o.later,
		Tell:  tell,
	}
}

// tableEnd follows each CREATE TABLE: whatever the server's defaults are.
const tableEnd = " ENGINE=InnoDB ROW_FORMAT=DYNAMIC"

// ddl returns the statements that make the tables. The last one makes them
// valid: the row that says what they are.
func ddl(o *Options, lines *sqlline.Lines, id string) []string {
	out := append([]string{
		// What a client is to be told, until it has read it.
		"CREATE TABLE " + o.prefix() + "post ( wake varbinary(64) NOT NULL, id varbinary(128) NOT NULL, " +
			"state bigint NOT NULL, token bigint NOT NULL, until bigint NOT NULL, PRIMARY KEY (wake, id) )" + tableEnd,
	}, lines.Schema()...)
	return append(out, fmt.Sprintf("INSERT IGNORE INTO %sstore (one, layout, boot, purged) VALUES (1, %d, %s, 0)", o.prefix(), lines.Layout(), id))
}

// Schema returns the statements that make the tables, as text for the command
// mysql or mariadb, for those whose programs may not make them. A nil o is the
// zero Options. It is an error if o is not valid.
func Schema(o *Options) (string, error) {
	if o == nil {
		o = new(Options)
	}
	if err := o.check(); err != nil {
		return "", driver.Wrap(driver.Refused, err)
	}
	var b strings.Builder
	for _, stmt := range ddl(o, sqlline.New(dialect(o, nil)), "replace(uuid(), '-', '')") {
		b.WriteString(stmt + ";\n")
	}
	b.WriteString("-- Rights of the user under whom programs lock, here app:\n")
	for _, table := range tables {
		fmt.Fprintf(&b, "-- GRANT SELECT, INSERT, UPDATE, DELETE ON %s%s TO app;\n", o.prefix(), table)
	}
	return b.String(), nil
}

// tables are their names without the prefix.
var tables = []string{"store", "line", "ticket", "grave", "post"}

// site is the database as the requests see it.
type site struct{ *Driver }

// Missing implements [sqlline.Site].
func (s *site) Missing(err error) bool { return code(err) == noTable }

// Create implements [sqlline.Site]. Every statement commits by itself here, so
// several clients may make the tables together: what is there already is left
// as it is, and the row that makes them valid comes last.
func (s *site) Create(ctx context.Context) error {
	err := s.inConn(ctx, func(c *conn) error {
		return c.define(ctx, ddl(&s.opt, s.r.Lines, "'"+rand.Text()+"'"))
	})
	if denied(err) {
		return driver.Errorf(driver.Refused, "the tables of Holdfast are missing, and this user may not make them; "+
			"let somebody who may run what `holdfast schema mysql` prints: %w", err)
	}
	return err
}

// Migrate implements [sqlline.Site]. Every statement commits by itself, so the
// one that writes down the new layout comes last, and what a client left that
// ended before it is passed over by the next. A named lock lets one client do
// it at a time. It ends with the connection, which is closed afterwards, and so
// do the settings: while a statement waits for a table, requests wait behind
// it, so it must give up in time.
func (s *site) Migrate(ctx context.Context, from int64) error {
	lines := s.r.Lines
	err := s.inConn(ctx, func(c *conn) error {
		defer c.discard()
		locked := int64(0)
		err := c.run(ctx, false, &item{text: fmt.Sprintf("SET SESSION autocommit = 1, lock_wait_timeout = %d", tablePatience)})
		if err == nil {
			err = c.run(ctx, false, &item{
				text: fmt.Sprintf("SELECT coalesce(GET_LOCK(concat('holdfast_', sha1(concat(database(), '.%s'))), %d), 0)", s.opt.prefix(), tablePatience),
				rows: true, row: func(scan func(...any) error) error { return scan(&locked) },
			})
		}
		if err == nil && locked != 1 {
			err = driver.Errorf(driver.NotDone, "another client has been changing the tables of Holdfast for %d s", tablePatience)
		}
		// Another client may have been first.
		var found sqlline.Found
		if err == nil {
			err = c.run(ctx, false, itemOf(lines.Store(&found)))
		}
		if err != nil || found.Layout < 1 || found.Layout >= lines.Layout() {
			return err
		}
		return c.define(ctx, lines.Changes(found.Layout))
	})
	if denied(err) {
		return driver.Errorf(driver.Refused, "the tables of Holdfast have layout %d, this version needs layout %d, and this user may not change them; "+
			"let somebody who may run: %s; %w", from, lines.Layout(), strings.Join(lines.Changes(from), "; "), err)
	}
	return err
}

// define runs statements that define tables, one after the other. What is there
// already is left as it is.
func (c *conn) define(ctx context.Context, stmts []string) error {
	for _, stmt := range stmts {
		err := c.run(ctx, true, &item{text: stmt})
		switch code(err) {
		case tableExists, columnExists, keyExists:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Swept removes messages that nobody has read in time: their clients are gone.
func (s *site) Swept(ctx context.Context) {
	text := &sqlline.Text{SQL: "DELETE FROM " + s.opt.prefix() + "post WHERE until < " + s.now() + " LIMIT 100", Writes: true}
	_ = s.Auto(ctx, &sqlline.Stmt{Text: text})
}

// now is the expression of the store's clock.
func (d *Driver) now() string {
	if d.opt.clock != "" {
		return d.opt.clock
	}
	return clockNow
}
