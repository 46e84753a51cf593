// Command trouble provokes the errors that a program may get, one after the other, and
// prints each. docs/what-can-go-wrong.md says how to handle them.
//
//	go run ./examples/trouble
//	go run ./examples/trouble -store redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const name = "examples/trouble"

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// show prints an error, which should match what programs test it for.
func show(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("there should have been an error %q, and there was: %w", want, err)
	}
	fmt.Println(err)
	return nil
}

func run(ctx context.Context, store string) error {
	ann, err := anylock.Open(ctx, store, holdfast.WithNote("ann"), holdfast.WithTTL(5*time.Second))
	if err != nil {
		return err
	}
	defer ann.Close()
	bob, err := anylock.Open(ctx, store, holdfast.WithNote("bob"))
	if err != nil {
		return err
	}
	defer bob.Close()

	hold, err := ann.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	_, held := bob.Mutex(name).TryLock(ctx)
	if held == nil {
		return errors.New("two hold the lock at the same time")
	}
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, waited := bob.Mutex(name).Lock(short)
	_, patient := bob.Mutex(name, holdfast.WithMaxWait(500*time.Millisecond)).Lock(ctx)
	_, mismatch := bob.Semaphore(name, 3).TryAcquire(ctx, 1)

	// An operator takes the lock from ann.
	line, err := bob.Inspect(ctx, name)
	if err != nil {
		return err
	}
	if err := bob.Break(ctx, name, line.Holders[0].ID); err != nil {
		return err
	}
	<-hold.Context().Done() // at once on stores that push, else with the next renewal
	lost := context.Cause(hold.Context())
	unlock := hold.Unlock()
	again := bob.Break(ctx, name, line.Holders[0].ID)

	// A worker that hangs is given up.
	hung := ann.Mutex(name, holdfast.WithMaxHold(300*time.Millisecond)).Do(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})

	// A lock that would have to wait for itself.
	var upgrade error
	err = ann.RWMutex(name+"/rw").RDo(ctx, func(reading context.Context) error {
		_, upgrade = ann.RWMutex(name + "/rw").Lock(reading)
		return nil
	})
	if err != nil {
		return err
	}
	released, err := ann.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	if err := released.Unlock(); err != nil {
		return err
	}
	_, late := ann.Mutex(name).Lock(released.Context())
	_, bad := ann.Mutex(name, holdfast.WithTTL(time.Millisecond)).TryLock(ctx)
	_, gone := anylock.Open(ctx, "redis://127.0.0.1:1")
	if bad == nil || gone == nil {
		return errors.New("a bad TTL or an address where nobody listens was taken")
	}

	// A Shutdown that does not wait until the work has ended.
	stays, err := bob.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	unfinished := bob.Shutdown(soon)
	asked := context.Cause(stays.Context())
	if err := errors.Join(stays.Unlock(), bob.Shutdown(ctx)); err != nil {
		return err
	}
	closed := ann.Close()
	_, after := ann.Mutex(name).TryLock(ctx)

	err = errors.Join(closed,
		show(held, holdfast.ErrHeld),
		show(waited, context.DeadlineExceeded),
		show(patient, holdfast.ErrMaxWait),
		show(mismatch, holdfast.ErrKindMismatch),
		show(lost, holdfast.ErrLost),
		show(unlock, holdfast.ErrLost),
		show(again, holdfast.ErrNoTicket),
		show(hung, holdfast.ErrLost),
		show(upgrade, holdfast.ErrUpgrade),
		show(late, holdfast.ErrReleased),
		show(after, holdfast.ErrClosed),
		show(asked, holdfast.ErrShutdown),
		show(unfinished, context.DeadlineExceeded),
	)
	fmt.Println(bad)
	fmt.Println(gone)
	return err
}
