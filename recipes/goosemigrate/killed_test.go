package goosemigrate_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/pglock"
	"github.com/holdfast-go/holdfast/recipes/goosemigrate"
)

var (
	postgres = flag.String("goose.postgres", "", "the URL of an empty PostgreSQL database, for TestKilledInstancesOnPostgres")
	kills    = flag.Int("goose.kills", 50, "how many instances it kills")
	asChild  = flag.Bool("goose.instance", false, "be one of the instances")
)

// longSteps is the number of migrations: so many that the kills come to an end first.
const longSteps = 200

// longMigrations make a table with a row for each step, and its times and connection.
func longMigrations() fstest.MapFS {
	files := fstest.MapFS{"00001_log.sql": {Data: []byte("-- +goose Up\nCREATE TABLE log (step INTEGER, connection INTEGER, begun TIMESTAMPTZ, ended TIMESTAMPTZ);\n")}}
	for i := range longSteps {
		files[fmt.Sprintf("%05d_step.sql", i+2)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\n"+
			"INSERT INTO log VALUES (%[1]d, pg_backend_pid(), clock_timestamp());\nSELECT pg_sleep(0.2);\nUPDATE log SET ended = clock_timestamp() WHERE step = %[1]d;\n", i)}
	}
	return files
}

// migrate is one instance.
func migrate(ctx context.Context, url string) error {
	driver, err := pglock.Open(ctx, url)
	if err != nil {
		return err
	}
	locks, err := holdfast.New(driver, holdfast.WithTTL(2*time.Second))
	if err != nil {
		return err
	}
	defer locks.Close()
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, longMigrations())
	if err != nil {
		return err
	}
	return goosemigrate.Up(ctx, locks, provider)
}

// TestInstance is an instance of TestKilledInstancesOnPostgres, in a process of its own.
func TestInstance(t *testing.T) {
	if !*asChild {
		return // TestKilledInstancesOnPostgres starts it
	}
	if err := migrate(t.Context(), *postgres); err != nil {
		t.Fatal(err)
	}
}

// TestKilledInstancesOnPostgres starts three instances, kills the one that migrates
// again and again, and starts another in its place. Each step is done once, and no
// two instances migrate at the same time.
func TestKilledInstancesOnPostgres(t *testing.T) {
	if *postgres == "" {
		return // the lane gives a database
	}
	db, err := sql.Open("pgx", *postgres)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestInstance$", "-goose.instance", "-goose.postgres", *postgres)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	driver, err := pglock.Open(t.Context(), *postgres)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := holdfast.New(driver)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	instances := map[int]*exec.Cmd{}
	for range 3 {
		cmd := start()
		instances[cmd.Process.Pid] = cmd
	}
	holder := func() int {
		seen, err := locks.Inspect(t.Context(), "migrate")
		if err != nil {
			t.Fatal(err)
		}
		if len(seen.Holders) == 0 {
			return 0
		}
		return seen.Holders[0].Holder.PID
	}
	killed := 0
	for killed < *kills {
		time.Sleep(time.Duration(rand.IntN(900)) * time.Millisecond)
		pid := holder()
		cmd := instances[pid]
		if cmd == nil {
			continue
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatalf("instance %d has ended after %d kills: %v", pid, killed, err)
		}
		_ = cmd.Wait() // killed
		delete(instances, pid)
		killed++
		cmd = start()
		instances[cmd.Process.Pid] = cmd
	}
	for pid, cmd := range instances {
		if err := cmd.Wait(); err != nil {
			t.Errorf("instance %d: %v", pid, err)
		}
	}
	number := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	rows, steps := number("SELECT count(*) FROM log"), number("SELECT count(DISTINCT step) FROM log WHERE ended IS NOT NULL")
	connections := number("SELECT count(DISTINCT connection) FROM log")
	beside := number("SELECT count(*) FROM log a JOIN log b ON a.step < b.step AND a.ended > b.begun")
	t.Logf("%d kills, %d rows for %d of %d steps, by %d connections, %d pairs at the same time", killed, rows, steps, longSteps, connections, beside)
	if rows != longSteps || steps != longSteps || beside != 0 {
		t.Error("a step was done twice, not at all, or beside another")
	}
}
