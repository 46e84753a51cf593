package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func mysqlStage(h *host) ([]bench.Target, map[string]string) {
	s := servers.MariaDB(h, servers.MariaDBOptions{})
	s.Exec(h, "CREATE TABLE bench_rows (name VARCHAR(100) PRIMARY KEY, n BIGINT NOT NULL)")
	p := server{pids: []int{s.PID()}, count: difference(func() (counts, error) {
		n := s.Value(h, "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'")
		return counts{Requests: float64(n)}, nil
	})}
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName = "holdfast", servers.MariaDBPassword, "tcp", fmt.Sprint("127.0.0.1:", s.Port), "locks"
	config.InterpolateParams = true // one round trip for a statement, not two
	row := func(name, kind, role string, in func(bench.Scenario) bool) bench.Target {
		return bench.Target{Spec: bench.Spec{Name: name, Kind: kind, Server: config.FormatDSN()}, Role: role, Probe: p, In: in}
	}
	return []bench.Target{
		ours(s.URL("holdfast", ""), p),
		row("GET_LOCK", "get-lock", bench.RolePeer, peers),
		row("limit: 2 UPDATEs", "mysql-update", bench.RoleLimit, alone),
	}, map[string]string{"mariadb": fmt.Sprint(float64(s.Value(h, "SELECT CAST(SUBSTRING_INDEX(VERSION(), '.', 1) AS SIGNED) * 100 + CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(VERSION(), '.', 2), '.', -1) AS SIGNED)")) / 100)}
}

func dialMySQL(dsn string, conns int) (*sql.DB, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.Logger = log.New(io.Discard, "", 0)
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// openGetLock has a connection for each that holds or waits, as the lock belongs
// to one.
func openGetLock(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	db, err := dialMySQL(s.Server, 100)
	if err != nil {
		return nil, err
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			c, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			var got sql.NullInt64
			err = c.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, int(patience.Seconds())).Scan(&got)
			if err == nil && got.Int64 != 1 {
				err = errors.New("GET_LOCK did not get it")
			}
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			return held(func() error {
				_, err := c.ExecContext(context.Background(), "DO RELEASE_LOCK(?)", name)
				return errors.Join(err, c.Close())
			}), nil
		},
		end: db.Close,
	}, nil
}

// openMySQLUpdate changes a row twice, with as many connections as Holdfast
// uses.
func openMySQLUpdate(ctx context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	db, err := dialMySQL(s.Server, 4)
	if err != nil {
		return nil, err
	}
	for i := range 64 {
		if _, err := db.ExecContext(ctx, "INSERT IGNORE INTO bench_rows VALUES (?, 0)", fmt.Sprint(s.Prefix, "own-", i)); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	update := func(ctx context.Context, name string) error {
		_, err := db.ExecContext(ctx, "UPDATE bench_rows SET n = n + 1 WHERE name = ?", name)
		return err
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			return held(func() error { return update(context.Background(), name) }), update(ctx, name)
		},
		end: db.Close,
	}, nil
}
