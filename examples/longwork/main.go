// Command longwork does work that takes longer than the lease of its lock. The
// lease is renewed as long as the work runs, and not a moment longer: the TTL
// says how long a holder that died blocks others, not how long work may take.
//
//	go run ./examples/longwork
//	go run ./examples/longwork -store redis://localhost:6379
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

const (
	name = "examples/longwork"
	ttl  = 3 * time.Second
	work = 2 * ttl
)

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, store string) error {
	worker, err := anylock.Open(ctx, store, holdfast.WithTTL(ttl), holdfast.WithNote("long work"))
	if err != nil {
		return err
	}
	defer worker.Close()
	other, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer other.Close()

	err = worker.Do(ctx, name, func(ctx context.Context) error {
		fmt.Printf("the work takes %v, the lease lasts %v\n", work, ttl)
		for done := ttl / 2; done <= work; done += ttl / 2 {
			select {
			case <-time.After(ttl / 2):
			case <-ctx.Done(): // the lock was lost
				return context.Cause(ctx)
			}
			_, err := other.Mutex(name).TryLock(ctx)
			if !errors.Is(err, holdfast.ErrHeld) {
				return fmt.Errorf("after %v another should have been refused, and got %v", done, err)
			}
			fmt.Printf("after %v another is refused\n", done)
		}
		return nil
	})
	if err != nil {
		return err
	}
	hold, err := other.Mutex(name).TryLock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("the work is done, and the other has the lock")
	return hold.Unlock()
}
