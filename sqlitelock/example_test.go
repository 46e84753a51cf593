package sqlitelock_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqlitelock"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	d, err := sqlitelock.Open(context.Background(), filepath.Join(dir, "locks.db"), nil)
	if err != nil {
		panic(err)
	}
	locks, err := holdfast.New(d)
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close() }()

	err = locks.Do(context.Background(), "backup", func(context.Context) error {
		fmt.Println("no other process of this machine is in here")
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: no other process of this machine is in here
}

func ExampleParseURL() {
	path, options, err := sqlitelock.ParseURL("sqlite:/var/lib/app/locks.db?dir=create")
	fmt.Println(path, options.CreateDir, err)
	// Output: /var/lib/app/locks.db true <nil>
}
