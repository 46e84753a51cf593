// Command nested shows reentrancy: a holds a lock and calls b, which takes the
// same lock, as it must when it is called alone. The lock travels in the context,
// so b nests in a's hold instead of waiting for it for ever; whoever comes with
// another context waits.
//
//	go run ./examples/nested
//	go run ./examples/nested -store redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const name = "examples/nested"

func main() {
	store := flag.String("store", "memory:", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *store); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// books needs the lock for all it does.
type books struct {
	w     io.Writer
	locks *holdfast.Client
}

func run(ctx context.Context, w io.Writer, store string) error {
	locks, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()
	bk := books{w, locks}
	if err := bk.a(ctx); err != nil {
		return err
	}
	fmt.Fprintln(w, "a has returned: the lock is free")
	return bk.b(ctx) // on its own
}

func (bk books) a(ctx context.Context) error {
	return bk.locks.Do(ctx, name, func(inside context.Context) error {
		fmt.Fprintln(bk.w, "a holds the lock")
		outer := holdfast.Token(inside, name)

		if err := bk.b(inside); err != nil {
			return err
		}

		// b has released its hold, which was a part of this one.
		_, err := bk.locks.Mutex(name).TryLock(ctx) // not the context of the hold
		if !errors.Is(err, holdfast.ErrHeld) {
			return fmt.Errorf("another should have found the lock held, and got %v", err)
		}
		fmt.Fprintln(bk.w, "b has returned: a still holds, and another is refused")
		if holdfast.Token(inside, name) != outer {
			return errors.New("the token has changed")
		}
		return nil
	})
}

func (bk books) b(ctx context.Context) error {
	nested := holdfast.Token(ctx, name) != 0
	return bk.locks.Do(ctx, name, func(context.Context) error {
		if nested {
			fmt.Fprintln(bk.w, "b holds it too, inside of a's hold")
		} else {
			fmt.Fprintln(bk.w, "b holds it alone")
		}
		return nil
	})
}
