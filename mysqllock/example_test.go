package mysqllock_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/mysqllock"
)

// ExampleNew uses a pool of the program's own beside its other work, and leaves
// it open.
func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:secret@tcp(localhost)/app?interpolateParams=true&multiStatements=true")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	d, err := mysqllock.New(db, nil)
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
