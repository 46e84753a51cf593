// Command nested has two services that need the same lock, of which one calls
// the other: orders charges through payments, and payments are also made alone.
// The lock travels in the context, so the charge nests in the order's hold
// instead of waiting for it for ever. A caller with another context waits.
//
//	go run ./examples/nested
//	go run ./examples/nested -store redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const name = "examples/nested/customer-7"

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// payments and orders each keep a customer's account consistent, and lock it.
type (
	payments struct{ locks *holdfast.Client }
	orders   struct {
		locks *holdfast.Client
		payments
	}
)

func run(ctx context.Context, store string) error {
	locks, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()
	service := orders{locks, payments{locks}}
	if err := service.place(ctx); err != nil {
		return err
	}
	fmt.Println("the order is placed: the lock is free")
	return service.charge(ctx) // on its own
}

func (o orders) place(ctx context.Context) error {
	return o.locks.Do(ctx, name, func(inside context.Context) error {
		fmt.Println("the order holds the lock")
		outer := holdfast.Token(inside, name)

		if err := o.charge(inside); err != nil {
			return err
		}

		// The charge has released its hold, which was a part of this one.
		_, err := o.locks.Mutex(name).TryLock(ctx) // not the context of the hold
		if !errors.Is(err, holdfast.ErrHeld) {
			return fmt.Errorf("another should have found the lock held, and got %v", err)
		}
		fmt.Println("the charge is made: the order still holds, and another is refused")
		if holdfast.Token(inside, name) != outer {
			return errors.New("the token has changed")
		}
		return nil
	})
}

func (p payments) charge(ctx context.Context) error {
	nested := holdfast.Token(ctx, name) != 0
	return p.locks.Do(ctx, name, func(context.Context) error {
		if nested {
			fmt.Println("the charge holds it too, inside of the order's hold")
		} else {
			fmt.Println("a charge holds it alone")
		}
		return nil
	})
}
