package mysqllock

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// identity tells databases apart by what was written when the tables were made,
// and copies of a database by its name and the server it is on.
func (d *Driver) identity(ctx context.Context) (string, error) {
	var database, host string
	err := d.ask(ctx, "SELECT DATABASE(), CONCAT(@@hostname, ':', @@port)", nil, &database, &host)
	return strings.Join([]string{"mysql", host, database, d.opt.prefix(), d.r.ID()}, "|"), err
}

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.r.Before(ctx); err != nil {
		return nil, err
	}
	return sqlline.RunChecks(ctx, []string{"writes", "rights"},
		d.checkVersion, d.checkRights, d.checkWrites, d.checkDurability, d.checkCluster, d.checkStatements, d.checkWaits,
		d.checkPush, d.r.CheckRoundTrip, d.checkClock, d.checkConnections, d.checkSize)
}

func (d *Driver) checkVersion(ctx context.Context) (driver.Finding, error) {
	var version string
	err := d.ask(ctx, "SELECT VERSION()", nil, &version)
	name, least := "MySQL", [2]int{8, 0}
	if strings.Contains(version, "MariaDB") {
		name, least = "MariaDB", [2]int{10, 6}
	}
	f := driver.Finding{Topic: "version", Detail: name + " " + version}
	var have [2]int
	_, _ = fmt.Sscanf(version, "%d.%d", &have[0], &have[1])
	if have[0] < least[0] || have[0] == least[0] && have[1] < least[1] {
		f.Level = driver.Warning
		f.Detail += ", older than any this was made for"
		f.Advice = fmt.Sprintf("take %s %d.%d or later", name, least[0], least[1])
	}
	return f, err
}

// checkRights tries statements that change nothing: rights are looked at all
// the same.
func (d *Driver) checkRights(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "rights", Detail: "this user may read and write the tables"}
	err := d.r.Prepare(ctx)
	for i, table := range tables {
		table = d.opt.prefix() + table
		column := []string{"one", "k", "line", "line", "wake"}[i]
		texts := []string{
			"SELECT " + column + " FROM " + table + " WHERE false",
			"UPDATE " + table + " SET " + column + " = " + column + " WHERE false",
			"INSERT INTO " + table + " SELECT * FROM " + table + " WHERE false",
			"DELETE FROM " + table + " WHERE false",
		}
		if i == 0 {
			texts = texts[:2] // the one row stays
		}
		for _, text := range texts {
			if err == nil {
				err = d.Auto(ctx, &sqlline.Stmt{Text: &sqlline.Text{SQL: text, Writes: !strings.HasPrefix(text, "SELECT")}})
			}
		}
	}
	if takesNoWrites(code(err)) {
		return f, nil // which is for the next check to say
	}
	if err == nil || driver.ClassOf(err) != driver.Refused {
		return f, err
	}
	f.Level = driver.Problem
	f.Detail = err.Error()
	f.Advice = "GRANT SELECT, INSERT, UPDATE, DELETE on the tables; who may make them runs what `holdfast schema mysql` prints"
	return f, nil
}

func (d *Driver) checkWrites(ctx context.Context) (driver.Finding, error) {
	var only int64
	if err := d.ask(ctx, "SELECT @@read_only", nil, &only); err != nil {
		return driver.Finding{}, err
	}
	f := driver.Finding{Topic: "writes", Detail: "the server takes them"}
	switch err := d.Auto(ctx, d.r.Lines.Touch()); {
	case takesNoWrites(code(err)):
		f.Level = driver.Problem
		f.Detail = err.Error() + ": nobody can lock"
		f.Advice = "connect to the primary"
	case err != nil:
		return f, err
	case only != 0:
		f.Level = driver.Warning
		f.Detail = "the server is read-only, and this user may write all the same"
		f.Advice = "if it is a replica, lock at the primary: locks taken here are unknown there"
	}
	return f, nil
}

func (d *Driver) checkDurability(ctx context.Context) (driver.Finding, error) {
	var flush int64
	err := d.ask(ctx, "SELECT @@innodb_flush_log_at_trx_commit", nil, &flush)
	f := driver.Finding{Topic: "durability", Detail: fmt.Sprintf("innodb_flush_log_at_trx_commit is %d", flush)}
	if flush != 1 {
		f.Level = driver.Warning
		f.Detail += ": a crash of the machine loses the last second, and may give a lock that is held to another"
		if flush == 0 {
			f.Detail = strings.Replace(f.Detail, "of the machine", "of the server", 1)
		}
		f.Advice = "innodb_flush_log_at_trx_commit = 1"
	}
	return f, err
}

// checkCluster looks for clusters in which several servers take writes, and
// conflicts show at commit only.
func (d *Driver) checkCluster(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "cluster", Detail: "one server takes writes"}
	for _, v := range []struct{ query, name string }{
		{"SELECT CAST(@@wsrep_on AS SIGNED)", "Galera"},
		{"SELECT IF(@@group_replication_single_primary_mode, 0, 1)", "Group Replication with several primaries"},
	} {
		var on int64
		err := d.ask(ctx, v.query, nil, &on)
		if err != nil && code(err) == 0 {
			return f, err
		}
		if on != 0 { // a server without the variable answers with an error
			f.Level = driver.Warning
			f.Detail = v.name + " is on: clients at two servers undo each other's requests, and neither exclusion nor order is certain between them"
			f.Advice = "have all clients lock at one and the same server"
		}
	}
	return f, nil
}

func (d *Driver) checkStatements(ctx context.Context) (driver.Finding, error) {
	w, err := d.wayOf(ctx)
	if err != nil {
		return driver.Finding{}, err
	}
	f := driver.Finding{Topic: "statements", Detail: "several are one round trip"}
	switch {
	case w.galera:
		f.Detail = "each is a round trip of its own, as it has to be in a Galera cluster"
	case !w.together:
		f.Level = driver.Warning
		f.Detail = "each is a round trip or two of its own"
		f.Advice = "interpolateParams=true&multiStatements=true in the data source name of the pool"
	}
	return f, nil
}

func (d *Driver) checkWaits(ctx context.Context) (driver.Finding, error) {
	var patience int64
	err := d.ask(ctx, "SELECT @@innodb_lock_wait_timeout", nil, &patience)
	f := driver.Finding{Topic: "lock waits", Detail: fmt.Sprintf("%d s at most", patience)}
	if patience > longPatience {
		f.Level = driver.Warning
		f.Detail += ": so long that every statement needs a transaction around it"
		f.Advice = "innodb_lock_wait_timeout=2 in the data source name of the pool"
	}
	return f, err
}

// checkPush hangs a bell as Watch does.
func (d *Driver) checkPush(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "wake-up", Detail: "by messages and a bell, on one connection for each client"}
	other := newDriver(d.db, d.bells, d.owned, &d.opt)
	defer other.r.Shut()
	other.way.Store(d.way.Load())
	heard := false
	c, err := other.bell.hang(ctx)
	if err == nil {
		heard, err = other.bell.echo(ctx, c)
		c.discard()
	}
	switch {
	case err != nil && (driver.ClassOf(err) != driver.Unavailable || ctx.Err() != nil):
		return f, err
	case err != nil:
		f.Level = driver.Warning
		f.Detail = "there is no connection for the bell: " + err.Error() + "; " + sqlline.Pace()
		f.Advice = "leave room for one connection of each client, beside those for its requests"
	case !heard:
		f.Level = driver.Warning
		f.Detail = "the bell is not heard, perhaps because of a pooler: " + sqlline.Pace()
		f.Advice = "connect to the server itself, or have the pooler keep a connection for each client"
	}
	return f, nil
}

func (d *Driver) checkClock(ctx context.Context) (driver.Finding, error) {
	return sqlline.CheckClock(func() (micros int64, err error) {
		err = d.ask(ctx, "SELECT "+clockNow, nil, &micros)
		return micros, err
	})
}

func (d *Driver) checkConnections(ctx context.Context) (driver.Finding, error) {
	var name string
	var used, most int64
	err := d.ask(ctx, "SHOW STATUS LIKE 'Threads_connected'", nil, &name, &used)
	if err == nil {
		err = d.ask(ctx, "SELECT @@max_connections", nil, &most)
	}
	return sqlline.CheckConnections(used, most), err
}

func (d *Driver) checkSize(ctx context.Context) (driver.Finding, error) {
	lines, held, waiting, err := d.r.Lines.Count(ctx, d)
	return driver.Finding{Topic: "size", Detail: fmt.Sprintf("%d lines, %d places hold, %d wait", lines, held, waiting)}, err
}
