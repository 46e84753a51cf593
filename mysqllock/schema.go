package mysqllock

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// clockNow is the server's clock in microseconds, whatever the session's time
// zone is. It is the time when the statement began, also within a packet of
// several.
const clockNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// joinText is the upsert that decides an uncontended join; see
// sqlqueue.Dialect.Join. Its result is the id in the answer: the token, or 0.
//
// Assignments are evaluated from left to right, and each sees the changes
// before it. Under MariaDB's SIMULTANEOUS_ASSIGNMENT they do not see them. The
// order gives the same result in both cases.
const joinText = `
	INSERT INTO {line} (k, name, lim, used, held, waiting, seq, turn, token, due, graves,
		h_id, h_owner, h_units, h_place, h_token, h_keep, h_until, h_wake, h_meta)
	SELECT ?, ?, ?, ?, 1, 0, 1, 1, {note}(n.token), 9223372036854775807, 0,
		?, ?, ?, 1, n.token, ?, {now} + ?, ?, ?
	FROM (SELECT {max}({tick}, ?, purged + 1) AS token FROM {store}) n
	ON DUPLICATE KEY UPDATE `

// freeCondition is the condition under which an existing queue is taken.
const freeCondition = "{line}.held = 0 AND {line}.waiting = 0 AND {line}.graves = 0 AND {line}.name = VALUES(name)"

// join returns joinText with its assignments.
func join() string {
	var b strings.Builder
	b.WriteString(joinText)
	set := func(column, value string) {
		fmt.Fprintf(&b, "%s = IF(%s AND {line}.token < 9223372036854775807, %s, {line}.%s), ", column, freeCondition, value, column)
	}
	for _, column := range []string{"h_id", "h_owner", "h_units", "h_keep", "h_until", "h_wake", "h_meta", "lim", "used", "due"} {
		set(column, "VALUES("+column+")")
	}
	for _, column := range []string{"h_place", "seq", "turn"} {
		set(column, "1")
	}
	const next = "{max}({line}.token + 1, VALUES(token))"
	set("h_token", next)
	fmt.Fprintf(&b, "token = {max}({line}.token, {note}(IF(%s AND {line}.token < 9223372036854775807, %s, 0))), ", freeCondition, next)
	// At this point the token may already be the new one, and the last possible
	// one.
	fmt.Fprintf(&b, "held = IF(%s AND ({line}.token < 9223372036854775807 OR h_id = VALUES(h_id)), 1, {line}.held)", freeCondition)
	return b.String()
}

// dialect returns the dialect of MySQL 8 and MariaDB. All text is bytes: bytes
// compare byte for byte under every collation, and are the same in every
// character set.
func dialect(o *Options, self string, tell func([]sqlqueue.Push) []*sqlqueue.Stmt) sqlqueue.Dialect {
	now := clockNow
	if o.clock != "" {
		now = o.clock
	}
	joinCompound, leaveCompound := compoundTexts(now, o.prefix()+"post")
	return sqlqueue.Dialect{
		Now:            now,
		Tick:           fmt.Sprintf("greatest((%s - %d) DIV 25, 1)", now, driver.Epoch.UnixMicro()),
		Greatest:       "greatest",
		ForUpdate:      " FOR UPDATE",
		SkipLocked:     " FOR UPDATE SKIP LOCKED",
		Ignore:         "ON DUPLICATE KEY UPDATE k = VALUES(k)",
		Overwrite:      "ON DUPLICATE KEY UPDATE until = VALUES(until)",
		Join:           join(),
		NoReturning:    true,
		Note:           "LAST_INSERT_ID",
		Batch:          999,
		Prefix:         o.prefix(),
		NoPartial:      true,
		ConstantBounds: true,
		Types: sqlqueue.Types{
			Int: "bigint", Key: "binary(32)", Bytes: "varbinary(4096)", ID: "varbinary(128)", Owner: "varbinary(256)",
			Text: "varbinary(4096)", Wake: "varbinary(64)",
			Table: tableEnd,
		},
		ExtraChanges: o.later,
		Notify:       tell,
		Self:         self,

		JoinCompound:  joinCompound,
		LeaveCompound: leaveCompound,
	}
}

// tableEnd ends each CREATE TABLE, so that the server's defaults do not matter.
const tableEnd = " ENGINE=InnoDB ROW_FORMAT=DYNAMIC"

// ddl returns the statements that create the tables. The last one writes the
// row that identifies the tables, and so makes them valid.
func ddl(o *Options, queues *sqlqueue.Queues, id string) []string {
	out := append([]string{
		// Messages for clients, until they are read.
		"CREATE TABLE " + o.prefix() + "post ( wake varbinary(64) NOT NULL, id varbinary(128) NOT NULL, " +
			"state bigint NOT NULL, token bigint NOT NULL, until bigint NOT NULL, PRIMARY KEY (wake, id) )" + tableEnd,
	}, queues.Schema()...)
	return append(out, fmt.Sprintf("INSERT IGNORE INTO %sstore (one, layout, boot, purged) VALUES (1, %d, %s, 0)", o.prefix(), queues.Layout(), id))
}

// Schema returns the statements that create the tables, as text for the command
// mysql or mariadb. It is for administrators of programs that may not create
// them. A nil o is the zero Options. Schema returns an error if o is not valid.
func Schema(o *Options) (string, error) {
	if o == nil {
		o = new(Options)
	}
	if err := o.check(); err != nil {
		return "", driver.Wrap(driver.Refused, err)
	}
	var b strings.Builder
	queues := sqlqueue.New(dialect(o, "", nil))
	for _, stmt := range append(ddl(o, queues, "replace(uuid(), '-', '')"), queues.MarkSchema()) {
		b.WriteString(stmt + ";\n")
	}
	b.WriteString("-- Rights of the user under whom programs lock, here app:\n")
	for _, table := range append(slices.Clone(tables), "mark") {
		fmt.Fprintf(&b, "-- GRANT SELECT, INSERT, UPDATE, DELETE ON %s%s TO app;\n", o.prefix(), table)
	}
	return b.String(), nil
}

// tables are the names of the tables without the prefix.
var tables = []string{"store", "line", "ticket", "grave", "post"}

// schemaTime bounds the creation and change of tables where the context has no
// deadline: large tables take a while.
const schemaTime = 10 * time.Minute

// Missing implements [sqlqueue.Database].
func (d *database) Missing(err error) bool { return code(err) == noTable }

// Create implements [sqlqueue.Database]. Every statement commits by itself, so
// several clients may create the tables together: existing tables are left as
// they are, and the row that makes them valid comes last.
func (d *database) Create(ctx context.Context) error {
	ctx, cancel := sqlqueue.Within(ctx, schemaTime)
	defer cancel()
	err := d.inConn(ctx, func(c *conn) error {
		// Where sessions do not commit by themselves, the INSERT needs a
		// COMMIT.
		return c.define(ctx, append(ddl(&d.opt, d.tables.Queues, "'"+rand.Text()+"'"), textCommit))
	})
	if denied(err) {
		return driver.Errorf(driver.Refused, "the tables of Holdfast are missing, and this user may not create them; "+
			"ask an administrator to run the output of `holdfast schema mysql`: %w", err)
	}
	return err
}

// Migrate implements [sqlqueue.Database]. Every statement commits by itself, so
// the statement that records the new layout comes last, and the next client
// skips the statements that a client completed before it ended. A named lock
// admits one client at a time. The lock and the settings end with the
// connection, which Migrate closes. While a statement waits for a table,
// requests wait behind it, so that wait is limited.
func (d *database) Migrate(ctx context.Context, from int64) error {
	ctx, cancel := sqlqueue.Within(ctx, schemaTime)
	defer cancel()
	queues := d.tables.Queues
	err := d.inConn(ctx, func(c *conn) error {
		defer c.discard()
		database, locked := "", int64(0)
		err := c.run(ctx, false, &item{text: fmt.Sprintf("SET SESSION autocommit = 1, lock_wait_timeout = %d", tableLockTimeout)})
		if err == nil {
			err = c.run(ctx, false, &item{text: "SELECT database()", rows: true, row: func(scan func(...any) error) error { return scan(&database) }})
		}
		if err == nil {
			err = c.run(ctx, false, &item{
				text: fmt.Sprintf("SELECT coalesce(GET_LOCK('%s', %d), 0)", migrationLock(database, d.opt.prefix()), tableLockTimeout),
				rows: true, row: func(scan func(...any) error) error { return scan(&locked) },
			})
		}
		if err == nil && locked != 1 {
			err = driver.Errorf(driver.NotDone, "another client has been changing the tables of Holdfast for %d s", tableLockTimeout)
		}
		// Another client may have been first.
		var found sqlqueue.StoreRow
		if err == nil {
			err = c.run(ctx, false, itemOf(queues.Store(&found)))
		}
		if err != nil || found.Layout < 1 || found.Layout >= queues.Layout() {
			return err
		}
		return c.define(ctx, queues.Changes(found.Layout))
	})
	if denied(err) {
		return driver.Errorf(driver.Refused, "the tables of Holdfast have layout %d, this version needs layout %d, and this user may not change them; "+
			"ask an administrator to run: %s; %w", from, queues.Layout(), strings.Join(queues.Changes(from), "; "), err)
	}
	return err
}

// migrationLock returns the name of the lock under which tables are changed.
// Clients of all versions take the same lock. The hash is computed here because
// MySQL has no SHA1() since 9.6.
func migrationLock(database, prefix string) string {
	sum := sha1.Sum([]byte(database + "." + prefix))
	return "holdfast_" + hex.EncodeToString(sum[:])
}

// define runs statements that define tables, one after the other. It leaves
// existing tables, columns and indexes as they are.
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
func (d *database) Swept(ctx context.Context) {
	text := &sqlqueue.Text{SQL: "DELETE FROM " + d.opt.prefix() + "post WHERE until < " + d.now() + " LIMIT 100", Writes: true}
	_ = d.Auto(ctx, &sqlqueue.Stmt{Text: text})
}

// now returns the expression of the store's clock.
func (d *database) now() string {
	if d.opt.clock != "" {
		return d.opt.clock
	}
	return clockNow
}
