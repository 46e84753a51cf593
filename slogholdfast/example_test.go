package slogholdfast_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/slogholdfast"
)

func ExampleObserver() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	locks, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithObserver(slogholdfast.Observer(log)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	err = locks.Do(context.Background(), "invoice/42", func(context.Context) error { return nil })
	fmt.Println(err)
	// Output: <nil>
}
