package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// Example runs a transaction that begins with the check.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "app.db?_txlock=immediate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, sqlfence.SQLite.Schema()); err != nil {
		fmt.Println(err)
		return
	}
	write := func(token uint64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := sqlfence.SQLite.Check(ctx, tx, "account/7", fence.Token{Value: token}); err != nil {
			return err
		}
		// Any other writes, in the same transaction.
		return tx.Commit()
	}
	fmt.Println(write(8))
	fmt.Println(write(7))
}
