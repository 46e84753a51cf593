package mysqllock

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.db.tables.CheckOpen(ctx); err != nil {
		return nil, err
	}
	return sqlqueue.RunChecks(ctx, []string{"writes", "rights"},
		d.checkVersion, d.checkRights, d.checkWrites, d.checkMarks, d.checkDurability, d.checkCluster, d.checkStatements, d.checkWaits,
		d.checkPush, d.db.tables.CheckRoundTrip, d.checkClock, d.checkConnections, d.checkSize)
}

func (d *Driver) checkVersion(ctx context.Context) (driver.Finding, error) {
	var version string
	err := d.db.queryRow(ctx, "SELECT VERSION()", nil, &version)
	name, least := "MySQL", [2]int{8, 0}
	if strings.Contains(version, "MariaDB") {
		name, least = "MariaDB", [2]int{10, 6}
	}
	f := driver.Finding{Topic: "version", Detail: name + " " + version}
	var have [2]int
	_, _ = fmt.Sscanf(version, "%d.%d", &have[0], &have[1])
	if have[0] < least[0] || have[0] == least[0] && have[1] < least[1] {
		f.Level = driver.Warning
		f.Detail += ", older than any supported version"
		f.Advice = fmt.Sprintf("take %s %d.%d or later", name, least[0], least[1])
	}
	return f, err
}

// checkRights runs statements that change nothing: the server checks rights
// nevertheless.
func (d *Driver) checkRights(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "rights", Detail: "this user may read and write the tables"}
	err := d.db.tables.Prepare(ctx)
	for i, table := range tables {
		table = d.db.opt.prefix() + table
		column := []string{"one", "k", "line", "line", "wake"}[i]
		texts := []string{
			"SELECT " + column + " FROM " + table + " WHERE false",
			"UPDATE " + table + " SET " + column + " = " + column + " WHERE false",
			"INSERT INTO " + table + " SELECT * FROM " + table + " WHERE false",
			"DELETE FROM " + table + " WHERE false",
		}
		if i == 0 {
			texts = texts[:2] // its single row stays
		}
		for _, text := range texts {
			if err == nil {
				err = d.db.Auto(ctx, &sqlqueue.Stmt{Text: &sqlqueue.Text{SQL: text, Writes: !strings.HasPrefix(text, "SELECT")}})
			}
		}
	}
	if takesNoWrites(code(err)) {
		return f, nil // checkWrites reports that
	}
	if err == nil || driver.ClassOf(err) != driver.Refused {
		return f, err
	}
	f.Level = driver.Problem
	f.Detail = err.Error()
	f.Advice = "GRANT SELECT, INSERT, UPDATE, DELETE on the tables; if they are missing, ask an administrator to run the output of `holdfast schema mysql`"
	return f, nil
}

// checkMarks examines the rights that Once needs. It creates the table of marks, as
// the first Once does, and runs statements that change nothing.
func (d *Driver) checkMarks(ctx context.Context) (driver.Finding, error) {
	return sqlqueue.CheckMarks(ctx, d, func() error {
		table := d.db.opt.prefix() + "mark"
		for _, text := range []string{"UPDATE " + table + " SET token = token WHERE false", "INSERT INTO " + table + " SELECT * FROM " + table + " WHERE false"} {
			if err := d.db.Auto(ctx, &sqlqueue.Stmt{Text: &sqlqueue.Text{SQL: text, Writes: true}}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *Driver) checkWrites(ctx context.Context) (driver.Finding, error) {
	var only int64
	if err := d.db.queryRow(ctx, "SELECT @@read_only", nil, &only); err != nil {
		return driver.Finding{}, err
	}
	f := driver.Finding{Topic: "writes", Detail: "the server accepts them"}
	switch err := d.db.Auto(ctx, d.db.tables.Queues.Touch()); {
	case takesNoWrites(code(err)):
		f.Level = driver.Problem
		f.Detail = err.Error() + ": no client can lock"
		f.Advice = "connect to the primary"
	case err != nil:
		return f, err
	case only != 0:
		f.Level = driver.Warning
		f.Detail = "the server is read-only, but this user may write"
		f.Advice = "if it is a replica, lock at the primary: locks taken here are unknown there"
	}
	return f, nil
}

func (d *Driver) checkDurability(ctx context.Context) (driver.Finding, error) {
	var flush int64
	err := d.db.queryRow(ctx, "SELECT @@innodb_flush_log_at_trx_commit", nil, &flush)
	f := driver.Finding{Topic: "durability", Detail: fmt.Sprintf("innodb_flush_log_at_trx_commit is %d", flush)}
	if flush != 1 {
		f.Level = driver.Warning
		f.Detail += ": a crash of the machine loses the last second, and may grant a held lock to another client"
		if flush == 0 {
			f.Detail = strings.Replace(f.Detail, "of the machine", "of the server", 1)
		}
		f.Advice = "innodb_flush_log_at_trx_commit = 1"
	}
	return f, err
}

// checkCluster looks for clusters in which several servers take writes, and in
// which conflicts appear only at commit.
func (d *Driver) checkCluster(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "cluster", Detail: "one server takes writes"}
	for _, v := range []struct{ query, name string }{
		{"SELECT CAST(@@wsrep_on AS SIGNED)", "Galera"},
		{"SELECT IF(@@group_replication_single_primary_mode, 0, 1)", "Group Replication with several primaries"},
	} {
		var on int64
		err := d.db.queryRow(ctx, v.query, nil, &on)
		if err != nil && code(err) == 0 {
			return f, err
		}
		if on != 0 { // a server without the variable answers with an error
			f.Level = driver.Warning
			f.Detail = v.name + " is on: clients at two servers undo each other's requests, and neither exclusion nor order is certain between them"
			f.Advice = "let all clients use the same server"
		}
	}
	return f, nil
}

func (d *Driver) checkStatements(ctx context.Context) (driver.Finding, error) {
	w, err := d.db.sendMode(ctx)
	if err != nil {
		return driver.Finding{}, err
	}
	f := driver.Finding{Topic: "statements", Detail: "several are one round trip"}
	switch {
	case w.galera:
		f.Detail = "each takes one round trip, as a Galera cluster requires"
	case !w.together:
		f.Level = driver.Warning
		f.Detail = "each takes one or two round trips"
		f.Advice = "interpolateParams=true&multiStatements=true in the data source name of the pool"
	}
	return f, nil
}

func (d *Driver) checkWaits(ctx context.Context) (driver.Finding, error) {
	var patience int64
	err := d.db.queryRow(ctx, "SELECT @@innodb_lock_wait_timeout", nil, &patience)
	f := driver.Finding{Topic: "lock waits", Detail: fmt.Sprintf("%d s at most", patience)}
	if patience > maxLockTimeout {
		f.Level = driver.Warning
		f.Detail += ": so long that each statement needs a transaction around it"
		f.Advice = "innodb_lock_wait_timeout=2 in the data source name of the pool"
	}
	return f, err
}

// checkPush opens a wake-up connection as Watch does.
func (d *Driver) checkPush(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "wake-up", Detail: "by messages and interruptions, on one connection for each client"}
	other := newDriver(d.db.pool, d.wakeup.pool, d.db.owned, &d.db.opt)
	defer other.db.tables.Stop()
	other.db.mode.Store(d.db.mode.Load())
	arrived := false
	c, err := other.wakeup.connect(ctx)
	if err == nil {
		arrived, err = other.wakeup.echo(ctx, c)
		c.discard()
	}
	switch {
	case err != nil && (driver.ClassOf(err) != driver.Unavailable || ctx.Err() != nil):
		return f, err
	case err != nil:
		f.Level = driver.Warning
		f.Detail = "there is no connection for wake-ups: " + err.Error() + "; " + sqlqueue.Pace()
		f.Advice = "leave one connection for each client in addition to its pool"
	case !arrived:
		f.Level = driver.Warning
		f.Detail = "interruptions do not arrive, perhaps because of a pooler: " + sqlqueue.Pace()
		f.Advice = "connect to the server itself, or have the pooler keep a connection for each client"
	}
	return f, nil
}

func (d *Driver) checkClock(ctx context.Context) (driver.Finding, error) {
	return sqlqueue.CheckClock(func() (micros int64, err error) {
		err = d.db.queryRow(ctx, "SELECT "+clockNow, nil, &micros)
		return micros, err
	})
}

func (d *Driver) checkConnections(ctx context.Context) (driver.Finding, error) {
	var name string
	var used, most int64
	err := d.db.queryRow(ctx, "SHOW STATUS LIKE 'Threads_connected'", nil, &name, &used)
	if err == nil {
		err = d.db.queryRow(ctx, "SELECT @@max_connections", nil, &most)
	}
	return sqlqueue.CheckConnections(used, most), err
}

func (d *Driver) checkSize(ctx context.Context) (driver.Finding, error) {
	queues, held, waiting, err := d.db.tables.Queues.Count(ctx, &d.db)
	return driver.Finding{Topic: "size", Detail: fmt.Sprintf("%d queues, %d places hold, %d wait", queues, held, waiting)}, err
}
