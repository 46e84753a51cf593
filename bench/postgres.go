package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver that pglock asks for

	"github.com/holdfast-go/holdfast/internal/cli/bench"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func pgStage(h *host) ([]bench.Target, map[string]string) {
	s := servers.Postgres(h, servers.PostgresOptions{Settings: []string{"shared_preload_libraries=pg_stat_statements"}})
	s.Exec(h, "CREATE EXTENSION pg_stat_statements")
	s.Exec(h, "CREATE TABLE bench_rows (name text PRIMARY KEY, n bigint NOT NULL)")
	url := s.URL("postgres", "sslmode=disable")
	// Made once: of two that make the table at once, one fails.
	if c, err := openPGLock(context.Background(), bench.Spec{Server: url}, bench.Seat{}); err != nil {
		h.Fatal(err)
	} else if err := c.Close(); err != nil {
		h.Fatal(err)
	}
	p := server{pids: []int{s.PID()}, count: difference(func() (counts, error) {
		return counts{Requests: float64(s.Value(h, "SELECT sum(calls)::bigint FROM pg_stat_statements"))}, nil
	})}
	row := func(name, kind, role, version, settings string, in func(bench.Scenario) bool) bench.Target {
		return bench.Target{Spec: bench.Spec{Name: name, Kind: kind, Server: url, Settings: settings}, Role: role, Version: version, Probe: p, In: in}
	}
	peer := version("cirello.io/pglock")
	competing := func(sc bench.Scenario) bool { return peers(sc) && sc.Name != "clients-4" }
	n := s.Value(h, "SELECT current_setting('server_version_num')::bigint")
	// NOTIFY wakes sessions of its own database alone.
	beside := func(clients int) bench.Target {
		name := fmt.Sprint("beside", clients)
		s.Exec(h, "CREATE DATABASE "+name)
		t := row(besideIdle(clients), bench.Holdfast, bench.RoleHoldfast, "", "", usual("clients-4"))
		t.Server, t.Beside = strings.Replace(url, "/postgres?", "/"+name+"?", 1), clients
		return t
	}
	return []bench.Target{
		ours(url, p),
		beside(16),
		beside(60),
		row("pg_advisory_lock", "pg-advisory", bench.RolePeer, "", "", competing),
		row("pglock, defaults", "pglock", bench.RolePeer, peer, "", usual("alone-1", "clients-2", "clients-8-1ms")),
		row("pglock, lease 1 s", "pglock", bench.RolePeer, peer, "1s", competing),
		row("limit: 2 UPDATEs", "pg-update", bench.RoleLimit, "", "", alone),
	}, map[string]string{"postgresql": fmt.Sprintf("%d.%d", n/10000, n%10000)}
}

// besideIdle names the row of Holdfast in a database with that many idle clients.
func besideIdle(clients int) string {
	return fmt.Sprintf("Holdfast, beside %d idle clients", clients)
}

// openAdvisory has a connection for each that holds or waits, as the lock
// belongs to one.
func openAdvisory(ctx context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	config, err := pgxpool.ParseConfig(s.Server)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 100
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			c, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := c.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
				c.Release()
				return nil, err
			}
			return held(func() error {
				defer c.Release()
				_, err := c.Exec(context.Background(), "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)
				return err
			}), nil
		},
		end: func() error { pool.Close(); return nil },
	}, nil
}

// openPGLock has the settings "" for pglock's own, or the lease, which is also
// how long it sleeps between two tries.
func openPGLock(_ context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	db, err := sql.Open("postgres", s.Server)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(20)
	opts := []pglock.ClientOption{pglock.WithLogger(log.New(io.Discard, "", 0))}
	lease := s.TTL
	if s.Settings != "" && lease == 0 {
		if lease, err = time.ParseDuration(s.Settings); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if lease > 0 {
		opts = append(opts, pglock.WithLeaseDuration(lease), pglock.WithHeartbeatFrequency(lease/3))
	}
	c, err := pglock.New(db, opts...)
	if err == nil {
		err = c.TryCreateTable()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			l, err := c.AcquireContext(ctx, name)
			if err != nil {
				return nil, err
			}
			return held(l.Close), nil
		},
		end: db.Close,
	}, nil
}

// openPGUpdate changes a row twice, with as many connections as Holdfast uses.
func openPGUpdate(ctx context.Context, s bench.Spec, _ bench.Seat) (bench.Client, error) {
	config, err := pgxpool.ParseConfig(s.Server)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	for i := range 64 {
		name := fmt.Sprint(s.Prefix, "own-", i)
		if _, err := pool.Exec(ctx, "INSERT INTO bench_rows VALUES ($1, 0) ON CONFLICT DO NOTHING", name); err != nil {
			return nil, err
		}
	}
	update := func(ctx context.Context, name string) error {
		_, err := pool.Exec(ctx, "UPDATE bench_rows SET n = n + 1 WHERE name = $1", name)
		return err
	}
	return &client{
		lock: func(ctx context.Context, name string) (bench.Held, error) {
			return held(func() error { return update(context.Background(), name) }), update(ctx, name)
		},
		end: func() error { pool.Close(); return nil },
	}, nil
}
