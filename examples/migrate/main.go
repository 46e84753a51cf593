// Command migrate starts four instances of a service at the same time. Each
// brings the database up to date before it serves. Under the lock one of them
// does, and the others wait and find that it is done. The transaction of a migration
// also stores the token of the hold: the database refuses an instance that was paused in
// the middle and has lost the lock.
//
//	go run ./examples/migrate
//	go run ./examples/migrate -store redis://localhost:6379
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const (
	name      = "examples/migrate"
	instances = 4
)

var migrations = []string{
	`CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL)`,
	`ALTER TABLE customer ADD COLUMN city TEXT`,
	`CREATE INDEX customer_city ON customer (city)`,
}

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, store string) error {
	dir, err := os.MkdirTemp("", "holdfast-migrate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE migrated (version INTEGER, fence INTEGER); INSERT INTO migrated VALUES (0, 0)`); err != nil {
		return err
	}

	var all sync.WaitGroup
	made, errs := make([]int, instances), make([]error, instances)
	for i := range instances {
		all.Go(func() { made[i], errs[i] = instance(ctx, store, db) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	workers, sum := 0, 0
	for _, n := range made {
		sum += n
		if n > 0 {
			workers++
		}
	}
	fmt.Printf("%d migrations were made, by %d of %d instances\n", sum, workers, instances)
	if err := migrate(ctx, db, len(migrations), `DROP TABLE customer`, 1); err == nil {
		return errors.New("an old token should have been refused")
	} else {
		fmt.Println("a late one with an old token:", err)
	}
	return nil
}

// instance makes the migrations before it serves, and returns how many it made.
func instance(ctx context.Context, store string, db *sql.DB) (made int, err error) {
	// An instance that hangs in a migration loses the lock after a minute.
	locks, err := anylock.Open(ctx, store, holdfast.WithMaxHold(time.Minute))
	if err != nil {
		return 0, err
	}
	defer locks.Close()
	err = locks.Do(ctx, name, func(ctx context.Context) error {
		var version int
		// Look again under the lock: another may have been here.
		if err := db.QueryRowContext(ctx, `SELECT version FROM migrated`).Scan(&version); err != nil {
			return err
		}
		for ; version < len(migrations); version++ {
			if err := migrate(ctx, db, version, migrations[version], holdfast.Token(ctx, name)); err != nil {
				return err
			}
			made++
		}
		return nil
	})
	return made, err
}

// migrate makes one migration and marks it, or does neither.
func migrate(ctx context.Context, db *sql.DB, version int, statement string, token uint64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	r, err := tx.ExecContext(ctx, `UPDATE migrated SET version = ?, fence = ? WHERE version = ? AND fence <= ?`, version+1, int64(token), version, int64(token))
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); n != 1 || err != nil {
		return errors.Join(err, errors.New("refused: a later holder has been here"))
	}
	if _, err := tx.ExecContext(ctx, statement); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond) // a table with more in it would take longer
	return tx.Commit()
}
