// Command transfer moves money between two accounts, in both directions at the
// same time. Each transfer reads and writes both, so it holds a lock for each.
// Multi takes them in one order, whatever order they are named in: two
// transfers that go opposite ways never wait for each other for ever.
//
//	go run ./examples/transfer
//	go run ./examples/transfer -store redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
)

const (
	tellers   = 4
	transfers = 15 // of each
	start     = 1000
)

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// bank stands for a database without transactions.
type bank struct{ ann, bob atomic.Int64 }

// move reads both balances and then writes both.
func (b *bank) move(from, to *atomic.Int64, amount int64) error {
	was, had := from.Load(), to.Load()
	if was < amount {
		return nil // not covered
	}
	time.Sleep(time.Millisecond) // the way to a disk or through a network
	from.Store(was - amount)
	to.Store(had + amount)
	return nil
}

func run(ctx context.Context, store string) error {
	var b bank
	b.ann.Store(start)
	b.bob.Store(start)
	var all sync.WaitGroup
	errs := make([]error, tellers)
	for i := range tellers {
		locks, err := anylock.Open(ctx, store) // a process of its own
		if err != nil {
			return err
		}
		defer locks.Close()
		all.Go(func() {
			from, to, names := &b.ann, &b.bob, []string{"examples/account/ann", "examples/account/bob"}
			if i%2 == 1 {
				from, to, names = &b.bob, &b.ann, []string{"examples/account/bob", "examples/account/ann"}
			}
			for range transfers {
				errs[i] = errors.Join(errs[i], locks.Multi(names).Do(ctx, func(context.Context) error {
					return b.move(from, to, int64(10+i))
				}))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}

	// Tellers 0 and 2 moved 10 and 12 each time, tellers 1 and 3 moved 11 and
	// 13 the other way.
	ann, bob := b.ann.Load(), b.bob.Load()
	fmt.Printf("%d transfers by %d tellers, both ways: nobody waited for ever\n", tellers*transfers, tellers)
	fmt.Printf("ann has %d, bob has %d, together %d\n", ann, bob, ann+bob)
	if ann != start+2*transfers || bob != start-2*transfers {
		return errors.New("money was lost or made: a transfer overwrote another")
	}
	return nil
}
