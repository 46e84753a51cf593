// Command shutdown ends a service as SIGTERM does. Shutdown asks the work to
// stop, keeps its lock until the work has stopped, and returns then. Only then
// does another client get the lock.
//
//	go run ./examples/shutdown
//	go run ./examples/shutdown -store redis://localhost:6379
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

const name = "examples/shutdown"

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, store string) error {
	locks, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()
	other, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer other.Close()

	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- locks.Do(ctx, name, func(ctx context.Context) error {
			close(begun)
			<-ctx.Done() // the work, which ends when its context does
			fmt.Println("the work is asked to stop:", context.Cause(ctx))
			time.Sleep(time.Second) // it writes down what it has done
			_, err := other.Mutex(name).TryLock(context.WithoutCancel(ctx))
			if !errors.Is(err, holdfast.ErrHeld) {
				return fmt.Errorf("another client holds beside the work: %v", err)
			}
			fmt.Println("the work ends; until now another client is refused")
			return nil
		})
	}()
	select {
	case <-begun: // here a service waits for SIGTERM, and ends its requests
	case err := <-ended:
		return err
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 25*time.Second)
	defer cancel() // the time until SIGKILL, less a margin
	if err := errors.Join(locks.Shutdown(grace), <-ended); err != nil {
		return err
	}
	hold, err := other.Mutex(name).TryLock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("Shutdown has returned, and another client holds")
	return hold.Unlock()
}
