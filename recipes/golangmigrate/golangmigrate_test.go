package golangmigrate_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/recipes/golangmigrate"
)

// migrate reads steps ahead, each on a goroutine. Those that it stops before have
// nobody to read what they write.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer"))
}

const steps = 10

// migrations make a table with a row for each step.
func migrations() fstest.MapFS {
	files := fstest.MapFS{"1_log.up.sql": {Data: []byte("CREATE TABLE log (step INTEGER);")}}
	for i := range steps {
		files[fmt.Sprintf("%d_step.up.sql", i+2)] = &fstest.MapFile{Data: fmt.Appendf(nil, "INSERT INTO log VALUES (%d);", i)}
	}
	return files
}

func client(t *testing.T, store *memlock.Store) *holdfast.Client {
	t.Helper()
	locks, err := holdfast.New(memlock.New(store))
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

// migration returns a migration of a database under the lock, and its driver.
func migration(t *testing.T, locks *holdfast.Client, db database.Driver) (*migrate.Migrate, *golangmigrate.Driver) {
	t.Helper()
	source, err := iofs.New(migrations(), ".")
	if err != nil {
		t.Fatal(err)
	}
	d := &golangmigrate.Driver{Driver: db, Context: t.Context(), Locks: locks}
	m, err := migrate.NewWithInstance("iofs", source, "app", d)
	if err != nil {
		t.Fatal(err)
	}
	d.Stop = m.GracefulStop
	return m, d
}

func closeBoth(t *testing.T, m *migrate.Migrate, locks *holdfast.Client) {
	t.Helper()
	if source, db := m.Close(); source != nil || db != nil {
		t.Error(source, db)
	}
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
}

// TestUpMigratesOnce starts five instances at once.
func TestUpMigratesOnce(t *testing.T) {
	store, file := memlock.NewStore(), filepath.Join(t.TempDir(), "app.db")
	look, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer look.Close()
	var all sync.WaitGroup
	for range 5 {
		db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(60000)")
		if err != nil {
			t.Fatal(err)
		}
		driver, err := sqlite.WithInstance(db, &sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		locks := client(t, store)
		m, _ := migration(t, locks, driver)
		all.Go(func() {
			if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
				t.Error(err)
			}
			closeBoth(t, m, locks)
		})
	}
	all.Wait()
	var rows, distinct int
	err = look.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT step) FROM log").Scan(&rows, &distinct)
	if err != nil || rows != steps || distinct != steps {
		t.Errorf("%d rows of %d steps, want %d: %v", rows, distinct, steps, err)
	}
}

// breaking is a database that breaks the lock in its fourth step.
type breaking struct {
	database.Driver
	run int
	do  func()
}

func (b *breaking) Run(text io.Reader) error {
	if b.run++; b.run == 4 {
		b.do()
	}
	return b.Driver.Run(text)
}

// TestUpStopsAfterLostLock breaks the lock in a step: the migration stops after that
// step or the next, and the error tells the loss.
func TestUpStopsAfterLostLock(t *testing.T) {
	locks := client(t, memlock.NewStore())
	stop := make(chan bool, 1) // as GracefulStop
	var m *migrate.Migrate
	db := &breaking{Driver: mustStub(t), do: func() {
		seen, err := locks.Inspect(t.Context(), "migrate")
		if err != nil || len(seen.Holders) != 1 {
			t.Errorf("%+v %v", seen, err)
			return
		}
		if err := locks.Break(t.Context(), "migrate", seen.Holders[0].ID); err != nil {
			t.Error(err)
		}
		m.GracefulStop <- <-stop // the loss is known
	}}
	made, d := migration(t, locks, db)
	m, d.Stop = made, stop
	if err := m.Up(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("a migration without its lock: %v", err)
	}
	if db.run > 5 {
		t.Errorf("%d steps were run", db.run)
	}
	closeBoth(t, m, locks)
}

// TestLockGivesUpBeforeMigrateDoes lets another instance hold the lock for ever.
func TestLockGivesUpBeforeMigrateDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore()
		other, locks := client(t, store), client(t, store)
		hold, err := other.Mutex("migrate").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m, _ := migration(t, locks, mustStub(t))
		if err := m.Up(); !errors.Is(err, database.ErrLocked) || !errors.Is(err, holdfast.ErrMaxWait) {
			t.Errorf("while another migrates: %v", err)
		}
		if err := hold.Unlock(); err != nil {
			t.Error(err)
		}
		if err := m.Up(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		closeBoth(t, m, locks)
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
}

func mustStub(t *testing.T) database.Driver {
	t.Helper()
	d, err := stub.WithInstance(nil, &stub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
