package pglock

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// queryRow runs a query that returns one row.
func (d *database) queryRow(ctx context.Context, query string, dest ...any) error {
	ctx, cancel := sqlqueue.Within(ctx, requestTime)
	defer cancel()
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return d.notAcquired(ctx, err)
	}
	defer c.Release()
	return classify(ctx, c.QueryRow(ctx, query, pgx.QueryExecModeExec).Scan(dest...), false)
}

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.db.tables.CheckOpen(ctx); err != nil {
		return nil, err
	}
	return sqlqueue.RunChecks(ctx, []string{"writes"},
		d.checkVersion, d.checkWrites, d.checkDurability, d.checkRights, d.checkMarks, d.checkPush, d.checkRoundTrip, d.checkClock, d.checkConnections, d.checkSize)
}

func (d *Driver) checkVersion(ctx context.Context) (driver.Finding, error) {
	var version string
	var number int
	err := d.db.queryRow(ctx, "SELECT current_setting('server_version'), current_setting('server_version_num')::int", &version, &number)
	f := driver.Finding{Topic: "version", Detail: "PostgreSQL " + version}
	if number < 13_00_00 {
		f.Level = driver.Warning
		f.Detail += ", older than any tested version"
		f.Advice = "use PostgreSQL 13 or later"
	}
	return f, err
}

func (d *Driver) checkWrites(ctx context.Context) (driver.Finding, error) {
	var standby bool
	var only string
	err := d.db.queryRow(ctx, "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')", &standby, &only)
	f := driver.Finding{Topic: "writes", Detail: "the server is a primary and accepts them"}
	switch {
	case standby:
		f.Level = driver.Problem
		f.Detail = "the server is a standby: no client can lock"
		f.Advice = "connect to the primary; a URL may name all servers, and the one that takes writes is chosen"
	case only == "on":
		f.Level = driver.Problem
		f.Detail = "transactions are read-only: no client can lock"
		f.Advice = "default_transaction_read_only = off for this user and database"
	}
	return f, err
}

func (d *Driver) checkDurability(ctx context.Context) (driver.Finding, error) {
	var commit, fsync, names string
	err := d.db.queryRow(ctx, "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('synchronous_standby_names')", &commit, &fsync, &names)
	f := driver.Finding{Topic: "durability", Detail: fmt.Sprintf("synchronous_commit %s, fsync %s", commit, fsync)}
	switch {
	case fsync != "on":
		f.Level = driver.Problem
		f.Detail += ": a crash of the machine may damage the tables, so that two clients hold one lock"
		f.Advice = "fsync = on"
	case commit == "off":
		f.Level = driver.Warning
		f.Detail += ": a crash of the server loses the last changes, and may grant a held lock to another client"
		f.Advice = "synchronous_commit = on, at least for this user"
	case names != "":
		f.Detail += "; it waits for standbys: " + names
	}
	return f, err
}

func (d *Driver) checkRights(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "rights", Detail: "this user may read and write the tables"}
	if err := d.db.tables.Prepare(ctx); err != nil {
		if driver.ClassOf(err) != driver.Refused {
			return f, err
		}
		f.Level = driver.Problem
		f.Detail = err.Error()
		f.Advice = "ask an administrator to run the output of `holdfast schema postgres`"
		return f, nil
	}
	missing, err := d.db.missingRights(ctx)
	if missing != "" {
		f.Level = driver.Problem
		f.Detail = "this user lacks rights: " + missing
		f.Advice = "GRANT SELECT, INSERT, UPDATE, DELETE on the four tables"
	}
	return f, err
}

// checkMarks examines the rights that Once needs. It creates the table of marks, as
// the first Once does.
func (d *Driver) checkMarks(ctx context.Context) (driver.Finding, error) {
	return sqlqueue.CheckMarks(ctx, d, func() error {
		missing, err := d.db.lacking(ctx, "'mark'", "'SELECT', 'INSERT', 'UPDATE'")
		if err == nil && missing != "" {
			err = driver.Errorf(driver.Refused, "this user lacks rights: %s", missing)
		}
		return err
	})
}

// missingRights returns a list of the rights on the tables that this user
// lacks.
func (d *database) missingRights(ctx context.Context) (list string, err error) {
	return d.lacking(ctx, "'store', 'line', 'ticket', 'grave'", "'SELECT', 'INSERT', 'UPDATE', 'DELETE'")
}

// lacking returns a list of those of the rights on the tables that this user lacks.
func (d *database) lacking(ctx context.Context, tables, rights string) (list string, err error) {
	query := "SELECT coalesce(string_agg(r || ' on " + d.opt.prefix() + "' || t, ', '), '') FROM unnest(ARRAY[" + tables + "]) t, " +
		"unnest(ARRAY[" + rights + "]) r WHERE NOT (t = 'store' AND r IN ('INSERT', 'DELETE')) " +
		"AND NOT has_table_privilege('" + d.opt.tables() + "' || t, r)"
	err = d.queryRow(ctx, query, &list)
	return list, err
}

// checkPush opens the connection for LISTEN as Watch does.
func (d *Driver) checkPush(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "wake-up", Detail: "by NOTIFY, on one connection for each client"}
	other := newDriver(d.db.pool, false, &d.db.opt)
	defer other.db.tables.Stop()
	c, err := other.listener.listen(ctx)
	if err != nil {
		if driver.ClassOf(err) != driver.Unavailable || ctx.Err() != nil {
			return f, err
		}
		f.Level = driver.Warning
		f.Detail = "there is no connection for LISTEN: " + err.Error()
		f.Advice = "leave one connection for each client in addition to its pool"
		return f, nil
	}
	closeConn(c)
	if other.listener.noPush.Load() {
		f.Level = driver.Warning
		f.Detail = "a pooler passes no notifications: " + sqlqueue.Pace()
		f.Advice = "bypass the pooler with the option listen, or use a pool in session mode"
	}
	return f, nil
}

func (d *Driver) checkRoundTrip(ctx context.Context) (driver.Finding, error) {
	f, err := d.db.tables.CheckRoundTrip(ctx)
	if code(err) == noRights {
		return driver.Finding{Topic: "round trip", Level: driver.Warning, Detail: "could not be measured without the rights"}, nil
	}
	return f, err
}

func (d *Driver) checkClock(ctx context.Context) (driver.Finding, error) {
	return sqlqueue.CheckClock(func() (micros int64, err error) {
		err = d.db.queryRow(ctx, "SELECT "+clockNow, &micros)
		return micros, err
	})
}

func (d *Driver) checkConnections(ctx context.Context) (driver.Finding, error) {
	var used, most int64
	err := d.db.queryRow(ctx, "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL), current_setting('max_connections')::bigint", &used, &most)
	return sqlqueue.CheckConnections(used, most), err
}

func (d *Driver) checkSize(ctx context.Context) (driver.Finding, error) {
	var queues, held, waiting, size int64
	t := d.db.opt.tables()
	err := d.db.queryRow(ctx, "SELECT count(*), coalesce(sum(held), 0)::bigint, coalesce(sum(waiting), 0)::bigint, "+
		"(SELECT sum(pg_total_relation_size(('"+t+"' || n)::regclass))::bigint FROM unnest(ARRAY['store', 'line', 'ticket', 'grave']) n) FROM "+t+"line",
		&queues, &held, &waiting, &size)
	if errors.Is(err, driver.ErrClosed) || code(err) != noRights && err != nil {
		return driver.Finding{}, err
	}
	return driver.Finding{Topic: "size", Detail: fmt.Sprintf("%d queues, %d places hold, %d wait; %d KiB", queues, held, waiting, size>>10)}, nil
}
