// Command counter is the oldest test of a lock: goroutines read a number, add
// one, and write it back. Without a lock most of the additions are lost; under a
// lock the sum is exact.
//
//	go run ./examples/counter
//	go run ./examples/counter -store redis://localhost:6379
//
// There are four clients, as in four processes, with 25 goroutines each.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const clients, goroutines, times = 4, 25, 20

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// number is read and written in two steps, like a row or a file.
type number struct{ n atomic.Int64 }

func (n *number) add() {
	was := n.n.Load()
	runtime.Gosched() // as any wait for a disk or a network would
	n.n.Store(was + 1)
}

func run(ctx context.Context, store string) error {
	var locks []*holdfast.Client
	for range clients {
		c, err := anylock.Open(ctx, store)
		if err != nil {
			return err
		}
		defer c.Close()
		locks = append(locks, c)
	}
	want := int64(clients * goroutines * times)

	var without number
	err := everybody(func(int) error {
		without.add()
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("without a lock: %d of %d additions are left\n", without.n.Load(), want)

	var with number
	err = everybody(func(client int) error {
		return locks[client].Do(ctx, "examples/counter", func(context.Context) error {
			with.add()
			return nil
		})
	})
	if err != nil {
		return err
	}
	fmt.Printf("under the lock: %d of %d\n", with.n.Load(), want)
	if with.n.Load() != want {
		return fmt.Errorf("the sum is %d, and should be %d", with.n.Load(), want)
	}
	return nil
}

// everybody calls add in each goroutine of each client, times over, and
// returns the first error.
func everybody(add func(client int) error) error {
	errs := make(chan error, clients*goroutines)
	var all sync.WaitGroup
	for g := range clients * goroutines {
		all.Go(func() {
			for range times {
				if err := add(g % clients); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}
