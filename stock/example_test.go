package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/stock"
)

// Example sells under ids: a sale with an id is made once, however often it is
// asked for.
func Example() {
	ctx := context.Background()
	st, err := stock.Open(ctx, nil, "memory:") // or redis://a:6379, redis://b:6379, …
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()

	if err := st.Set(ctx, "phone", 3, 2); err != nil { // 3 units in 2 shards
		fmt.Println(err)
		return
	}
	for _, order := range []string{"order/1", "order/1", "order/2", "order/3"} {
		receipt, err := st.Sell(ctx, "phone", 1, order)
		switch {
		case errors.Is(err, stock.ErrSoldOut):
			fmt.Println(order, "is too late")
		case err != nil:
			fmt.Println(err) // stock.ErrUnknown: ask again with the same id
		default:
			fmt.Println(order, receipt.Units)
		}
	}
	_, err = st.Sell(ctx, "phone", 1, "order/4")
	fmt.Println(err)
	// Output:
	// order/1 1
	// order/1 1
	// order/2 1
	// order/3 1
	// stock: "phone" has 0 left, 1 were asked for
}

// ExampleNewSQL keeps a product in a database, with the driver that the program
// has: here github.com/jackc/pgx/v5/stdlib.
func ExampleNewSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@db.example.org/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	st, err := stock.NewSQL(ctx, nil, db) // creates the tables if there are none
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()

	if err := st.Set(ctx, "phone", 100_000, 2); err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := st.Sell(ctx, "phone", 1, "order/1")
	fmt.Println(receipt.Units, err)
}

// ExampleSchema prints the tables for an administrator.
func ExampleSchema() {
	text, err := stock.Schema(nil, "postgres")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(text) // for psql
}

// ExampleStock_Reserve keeps the contents of a customer's basket for a while,
// and sells them after the payment.
func ExampleStock_Reserve() {
	ctx := context.Background()
	st, err := stock.Open(ctx, nil, "memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()
	_ = st.Set(ctx, "seat", 2, 1)

	_, err = st.Reserve(ctx, "seat", 2, "basket/7", 10*time.Minute)
	fmt.Println(err)
	fmt.Println(st.Confirm(ctx, "seat", "basket/7"))
	fmt.Println(st.Return(ctx, "seat", "basket/7")) // the customer sends it back
	t, err := st.Total(ctx, "seat")
	fmt.Println(t.Least, t.Exact, err)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// 2 true <nil>
}
