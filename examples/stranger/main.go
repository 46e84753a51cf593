// Command stranger shows that a hold releases itself and nothing else. A second Unlock
// leaves the next holder its lock, and so does the Unlock of a hold that was lost while
// its holder did not know.
//
//	go run ./examples/stranger
//	go run ./examples/stranger -store redis://localhost:6379
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

const name = "examples/stranger"

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, store string) error {
	ann, err := anylock.Open(ctx, store, holdfast.WithNote("ann"))
	if err != nil {
		return err
	}
	defer ann.Close()
	bob, err := anylock.Open(ctx, store, holdfast.WithNote("bob"))
	if err != nil {
		return err
	}
	defer bob.Close()

	// Ann releases twice; in between, Bob got the lock.
	first, err := ann.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	if err := first.Unlock(); err != nil {
		return err
	}
	second, err := bob.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	if err := first.Unlock(); err != nil {
		return err
	}
	if err := holds(ctx, ann, second); err != nil {
		return err
	}
	fmt.Println("ann unlocked a second time: bob still holds")

	// An operator takes the lock from Bob, and Ann gets it. Bob has not heard
	// of that when he releases.
	line, err := bob.Inspect(ctx, name)
	if err != nil {
		return err
	}
	if err := ann.Break(ctx, name, line.Holders[0].ID); err != nil {
		return err
	}
	third, err := ann.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	if err := second.Unlock(); !errors.Is(err, holdfast.ErrLost) {
		return fmt.Errorf("bob should have been told that his lock was lost, and got %v", err)
	}
	if err := holds(ctx, bob, third); err != nil {
		return err
	}
	fmt.Println("bob unlocked what he had lost, and was told so: ann still holds")
	return third.Unlock()
}

// holds checks that a hold is good, and that another client finds it so.
func holds(ctx context.Context, other *holdfast.Client, h *holdfast.Hold) error {
	if err := h.Err(); err != nil {
		return err
	}
	if _, err := other.Mutex(name).TryLock(ctx); !errors.Is(err, holdfast.ErrHeld) {
		return fmt.Errorf("the lock should be held, and TryLock said %v", err)
	}
	return nil
}
