package pglock_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/pglock"
)

// ExampleNew uses a pool of the program's own beside its other work, and leaves
// it open.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	d, err := pglock.New(pool, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := holdfast.New(d)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Do(ctx, "invoice/42", func(ctx context.Context) error { return ctx.Err() })
	fmt.Println(err)
}
