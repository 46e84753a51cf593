package otelholdfast_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

func ExampleObserver() {
	// The metrics and spans go to the global providers.
	locks, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithObserver(otelholdfast.Observer(nil)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	fmt.Println(locks.Do(context.Background(), "invoice/42", func(context.Context) error { return nil }))
	// Output: <nil>
}
