package pglock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// identity tells databases apart by what was written when the tables were made,
// and copies of a database by its name and the server's own id, where this user
// may read that.
func (d *Driver) identity(ctx context.Context) (string, error) {
	var database, system string
	err := d.ask(ctx, "SELECT current_database()", &database)
	if err == nil {
		err = d.ask(ctx, "SELECT system_identifier::text FROM pg_control_system()", &system)
		if code(err) == noRights {
			system, err = "", nil
		}
	}
	if err != nil {
		return "", err
	}
	return strings.Join([]string{"postgres", system, database, d.opt.tables(), d.r.ID()}, "|"), nil
}

// ask runs a query of one row.
func (d *Driver) ask(ctx context.Context, query string, dest ...any) error {
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return d.notAcquired(ctx, err)
	}
	defer c.Release()
	return classify(ctx, c.QueryRow(ctx, query, pgx.QueryExecModeExec).Scan(dest...), false)
}

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.r.Before(ctx); err != nil {
		return nil, err
	}
	return sqlline.RunChecks(ctx, []string{"writes"},
		d.checkVersion, d.checkWrites, d.checkDurability, d.checkRights, d.checkPush, d.checkRoundTrip, d.checkClock, d.checkConnections, d.checkSize)
}

func (d *Driver) checkVersion(ctx context.Context) (driver.Finding, error) {
	var version string
	var number int
	err := d.ask(ctx, "SELECT current_setting('server_version'), current_setting('server_version_num')::int", &version, &number)
	f := driver.Finding{Topic: "version", Detail: "PostgreSQL " + version}
	if number < 13_00_00 {
		f.Level = driver.Warning
		f.Detail += ", older than any this was tested with"
		f.Advice = "take PostgreSQL 13 or later"
	}
	return f, err
}

func (d *Driver) checkWrites(ctx context.Context) (driver.Finding, error) {
	var standby bool
	var only string
	err := d.ask(ctx, "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')", &standby, &only)
	f := driver.Finding{Topic: "writes", Detail: "the server is a primary and takes them"}
	switch {
	case standby:
		f.Level = driver.Problem
		f.Detail = "the server is a standby: nobody can lock"
		f.Advice = "connect to the primary; a URL may name all servers, and the one that takes writes is chosen"
	case only == "on":
		f.Level = driver.Problem
		f.Detail = "transactions are read-only: nobody can lock"
		f.Advice = "default_transaction_read_only = off for this user and database"
	}
	return f, err
}

func (d *Driver) checkDurability(ctx context.Context) (driver.Finding, error) {
	var commit, fsync, names string
	err := d.ask(ctx, "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('synchronous_standby_names')", &commit, &fsync, &names)
	f := driver.Finding{Topic: "durability", Detail: fmt.Sprintf("synchronous_commit %s, fsync %s", commit, fsync)}
	switch {
	case fsync != "on":
		f.Level = driver.Problem
		f.Detail += ": a crash of the machine may damage the tables, and give a lock to two"
		f.Advice = "fsync = on"
	case commit == "off":
		f.Level = driver.Warning
		f.Detail += ": a crash of the server loses the last changes, and may give a lock that is held to another"
		f.Advice = "synchronous_commit = on, for this user if not for all"
	case names != "":
		f.Detail += "; it waits for standbys: " + names
	}
	return f, err
}

func (d *Driver) checkRights(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "rights", Detail: "this user may read and write the tables"}
	if err := d.r.Prepare(ctx); err != nil {
		if driver.ClassOf(err) != driver.Refused {
			return f, err
		}
		f.Level = driver.Problem
		f.Detail = err.Error()
		f.Advice = "have the tables made by who may, with what `holdfast schema postgres` prints"
		return f, nil
	}
	var missing string
	query := "SELECT coalesce(string_agg(t || ' ' || r, ', '), '') FROM unnest(ARRAY['store', 'line', 'ticket', 'grave']) t, " +
		"unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r WHERE NOT (t = 'store' AND r IN ('INSERT', 'DELETE')) " +
		"AND NOT has_table_privilege('" + d.opt.tables() + "' || t, r)"
	err := d.ask(ctx, query, &missing)
	if missing != "" {
		f.Level = driver.Problem
		f.Detail = "this user lacks rights on " + d.opt.tables() + "…: " + missing
		f.Advice = "GRANT SELECT, INSERT, UPDATE, DELETE on the four tables"
	}
	return f, err
}

// checkPush opens the connection for LISTEN as Watch does.
func (d *Driver) checkPush(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "wake-up", Detail: "by NOTIFY, on one connection for each client"}
	other := newDriver(d.pool, false, &d.opt)
	defer other.r.Shut()
	c, err := other.ear.listen(ctx)
	if err != nil {
		if driver.ClassOf(err) != driver.Unavailable || ctx.Err() != nil {
			return f, err
		}
		f.Level = driver.Warning
		f.Detail = "there is no connection for LISTEN: " + err.Error()
		f.Advice = "leave room for one connection of each client, beside those of its pool"
		return f, nil
	}
	closeConn(c)
	if other.ear.deaf.Load() {
		f.Level = driver.Warning
		f.Detail = "a pooler passes no notifications: " + sqlline.Pace()
		f.Advice = "give the way past the pooler with the option listen, or use a pool of mode session"
	}
	return f, nil
}

func (d *Driver) checkRoundTrip(ctx context.Context) (driver.Finding, error) {
	f, err := d.r.CheckRoundTrip(ctx)
	if code(err) == noRights {
		return driver.Finding{Topic: "round trip", Level: driver.Warning, Detail: "could not be measured without the rights"}, nil
	}
	return f, err
}

func (d *Driver) checkClock(ctx context.Context) (driver.Finding, error) {
	return sqlline.CheckClock(func() (micros int64, err error) {
		err = d.ask(ctx, "SELECT "+clockNow, &micros)
		return micros, err
	})
}

func (d *Driver) checkConnections(ctx context.Context) (driver.Finding, error) {
	var used, most int64
	err := d.ask(ctx, "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL), current_setting('max_connections')::bigint", &used, &most)
	return sqlline.CheckConnections(used, most), err
}

func (d *Driver) checkSize(ctx context.Context) (driver.Finding, error) {
	var lines, held, waiting, size int64
	t := d.opt.tables()
	err := d.ask(ctx, "SELECT count(*), coalesce(sum(held), 0)::bigint, coalesce(sum(waiting), 0)::bigint, "+
		"(SELECT sum(pg_total_relation_size(('"+t+"' || n)::regclass))::bigint FROM unnest(ARRAY['store', 'line', 'ticket', 'grave']) n) FROM "+t+"line",
		&lines, &held, &waiting, &size)
	if errors.Is(err, driver.ErrClosed) || code(err) != noRights && err != nil {
		return driver.Finding{}, err
	}
	return driver.Finding{Topic: "size", Detail: fmt.Sprintf("%d lines, %d places hold, %d wait; %d KiB", lines, held, waiting, size>>10)}, nil
}
