package goosemigrate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/recipes/goosemigrate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const steps = 10

// migrations make a table with a row for each step.
func migrations() fstest.MapFS {
	files := fstest.MapFS{"00001_log.sql": {Data: []byte("-- +goose Up\nCREATE TABLE log (step INTEGER);\n")}}
	for i := range steps {
		files[fmt.Sprintf("%05d_step.sql", i+2)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\nINSERT INTO log VALUES (%d);\n", i)}
	}
	return files
}

type instance struct {
	locks    *holdfast.Client
	db       *sql.DB
	provider *goose.Provider
}

func newInstance(t *testing.T, store *memlock.Store, file string, opts ...goose.ProviderOption) *instance {
	t.Helper()
	locks, err := holdfast.New(memlock.New(store))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return &instance{locks, db, provider}
}

// check wants each step once.
func (i *instance) check(t *testing.T) {
	t.Helper()
	var rows, distinct int
	err := i.db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT step) FROM log").Scan(&rows, &distinct)
	if err != nil || rows != steps || distinct != steps {
		t.Errorf("%d rows of %d steps, want %d: %v", rows, distinct, steps, err)
	}
}

// TestUpMigratesOnce starts five instances at once.
func TestUpMigratesOnce(t *testing.T) {
	store, file := memlock.NewStore(), filepath.Join(t.TempDir(), "app.db")
	var all sync.WaitGroup
	var last *instance
	for range 5 {
		i := newInstance(t, store, file)
		last = i
		all.Go(func() {
			if err := goosemigrate.Up(t.Context(), i.locks, i.provider); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	last.check(t)
}

// TestUpEndsWithLostLock breaks the lock in the middle of a migration: the migration
// stops there, and the next instance goes on.
func TestUpEndsWithLostLock(t *testing.T) {
	store, file := memlock.NewStore(), filepath.Join(t.TempDir(), "app.db")
	var i *instance
	i = newInstance(t, store, file, goose.WithGoMigrations(goose.NewGoMigration(100, &goose.GoFunc{
		RunDB: func(ctx context.Context, _ *sql.DB) error {
			seen, err := i.locks.Inspect(ctx, "migrate")
			if err != nil || len(seen.Holders) != 1 {
				return fmt.Errorf("%+v: %w", seen, err)
			}
			if err := i.locks.Break(ctx, "migrate", seen.Holders[0].ID); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		},
	}, nil)))
	if err := goosemigrate.Up(t.Context(), i.locks, i.provider); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("a migration without its lock: %v", err)
	}
	next := newInstance(t, store, file)
	if err := goosemigrate.Up(t.Context(), next.locks, next.provider); err != nil {
		t.Error(err)
	}
	next.check(t)
}
