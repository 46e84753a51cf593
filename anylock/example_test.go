package anylock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// Example posts an invoice in one process of all at a time. The file has the store's URL,
// and the token protects the row, even from a holder that was paused.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "store") // /etc/holdfast/store of a service
	if err := os.WriteFile(file, []byte("memory:billing\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	db, err := sql.Open("sqlite", filepath.Join(folder, "app.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE invoice (id INTEGER, posted BOOLEAN, fence INTEGER); INSERT INTO invoice VALUES (42, false, 0)`); err != nil {
		fmt.Println(err)
		return
	}

	locks, err := anylock.Open(ctx, "@"+file, holdfast.WithPrefix("billing/"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	post := func(token uint64) error {
		return sqlfence.Matched(db.ExecContext(ctx, `UPDATE invoice SET posted = true, fence = $1 WHERE id = 42 AND fence <= $1`, int64(token)))
	}
	var token uint64
	fmt.Println(locks.Do(ctx, "invoice/42", func(ctx context.Context) error {
		token = holdfast.Token(ctx, "invoice/42")
		return post(token)
	}))
	fmt.Println("an earlier holder is refused:", errors.Is(post(token-1), fence.ErrStale))
	// Output:
	// <nil>
	// an earlier holder is refused: true
}

func ExampleOpen() {
	ctx := context.Background()
	locks, err := anylock.Open(ctx, "memory:orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Do(ctx, "invoice/42", func(ctx context.Context) error {
		fmt.Println("alone, with a token:", holdfast.Token(ctx, "invoice/42") > 0)
		return nil
	})
	fmt.Println(err)

	_, err = anylock.Open(ctx, "mongodb://localhost")
	fmt.Println(err != nil)
	// Output:
	// alone, with a token: true
	// <nil>
	// true
}

// ExampleOpenRetry is the whole configuration of a service, which may start
// before its store.
func ExampleOpenRetry() {
	os.Setenv("HOLDFAST_STORE", "memory:service") // redis://…, or @/etc/holdfast/store
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	locks, err := anylock.OpenRetry(ctx, os.Getenv("HOLDFAST_STORE"), holdfast.WithPrefix("billing/"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	fmt.Println(locks.Ping(ctx))
	// Output:
	// <nil>
}

func ExampleRedact() {
	fmt.Println(anylock.Redact("redis://app:secret@db.example.org:6379/0"))
	// Output: redis://app:***@db.example.org:6379/0
}
