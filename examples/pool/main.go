// Command pool calls a service from several processes. The service allows a number of
// calls at a time, and a number in each second. A semaphore bounds the first over all
// processes: each call needs one of its permits. A call that keeps its permit for a while
// bounds the second, too.
//
//	go run ./examples/pool
//	go run ./examples/pool -store redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const (
	processes = 3
	workers   = 4 // in each
	calls     = 2 // of each worker

	permits = 5
	keep    = 200 * time.Millisecond // 5 permits for 1/5 s each: 25 calls a second
)

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, store string) error {
	var open service
	err := everybody(func(int) error { open.call(); return nil })
	if err != nil {
		return err
	}
	fmt.Printf("without a semaphore: up to %d calls at a time\n", open.most)

	var pools [processes]*holdfast.Semaphore
	for i := range pools {
		locks, err := anylock.Open(ctx, store)
		if err != nil {
			return err
		}
		defer locks.Close()
		pools[i] = locks.Semaphore("examples/pool", permits)
	}
	var bounded service
	err = everybody(func(process int) error {
		return pools[process].Do(ctx, 1, func(context.Context) error {
			bounded.call()
			time.Sleep(keep)
			return nil
		})
	})
	if err != nil {
		return err
	}
	all := len(bounded.began)
	fmt.Printf("with %d permits: up to %d of %d calls at a time\n", permits, bounded.most, all)
	if bounded.most > permits {
		return errors.New("more at a time than there are permits")
	}
	for i := permits; i < all; i++ {
		if bounded.began[i].Sub(bounded.began[i-permits]) < keep {
			return fmt.Errorf("more than %d began within %v", permits, keep)
		}
	}
	fmt.Printf("no more than %d began within any %v\n", permits, keep)
	return nil
}

// service notes when each call begins, and how many run at a time.
type service struct {
	mu        sync.Mutex
	now, most int
	began     []time.Time
}

func (s *service) call() {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.began = append(s.began, time.Now())
	s.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
}

// everybody calls in each worker of each process, and returns what failed.
func everybody(call func(process int) error) error {
	errs := make([]error, processes*workers)
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for range calls {
				errs[w] = errors.Join(errs[w], call(w%processes))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
