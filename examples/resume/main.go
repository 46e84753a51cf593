// Command resume has a job that outlives its worker. The worker is restarted in
// the middle, as in every deployment; the job keeps its lock meanwhile, because
// the lock is held in the job's name and not in that of a process. The first
// worker detaches from the hold instead of releasing it, and the second attaches
// to it by naming the same owner.
//
//	go run ./examples/resume
//	go run ./examples/resume -store redis://localhost:6379
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
	name  = "examples/resume"
	steps = 4
	// ttl has to cover the restart: the job keeps the lock for this time while
	// nobody works on it.
	ttl = 5 * time.Second
)

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// job stands for a row of the database, in which the job notes how far it is.
type job struct {
	id   string
	step int
}

// work is one process that works on the job: from where it stands, until it is
// done or the process has to end. It returns the token it worked with.
func work(ctx context.Context, store, worker string, j *job, until int) (uint64, error) {
	locks, err := anylock.Open(ctx, store, holdfast.WithTTL(ttl))
	if err != nil {
		return 0, err
	}
	defer locks.Close()
	hold, err := locks.Mutex(name, holdfast.WithOwner(j.id)).Lock(ctx)
	if err != nil {
		return 0, err
	}
	for ; j.step < until; j.step++ {
		if err := hold.Err(); err != nil {
			return 0, err // lost: what comes now would be unguarded
		}
		fmt.Printf("%s: step %d of %d\n", worker, j.step+1, steps)
	}
	if j.step < steps {
		fmt.Printf("%s has to end, and detaches\n", worker)
		return hold.Token(), hold.Detach()
	}
	fmt.Printf("%s: done, and releases\n", worker)
	return hold.Token(), hold.Unlock()
}

func run(ctx context.Context, store string) error {
	j := &job{id: fmt.Sprint("import-", time.Now().UnixNano())}
	first, err := work(ctx, store, "worker 1", j, 2)
	if err != nil {
		return err
	}

	// Nobody works now, and yet nobody else can start.
	other, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer other.Close()
	if _, err := other.Mutex(name).TryLock(ctx); !errors.Is(err, holdfast.ErrHeld) {
		return fmt.Errorf("another job should have been refused, and got %v", err)
	}
	fmt.Println("between the two, another job is refused")

	second, err := work(ctx, store, "worker 2", j, steps)
	if err != nil {
		return err
	}
	fmt.Println("the token is the same, since the hold is:", first == second)
	// The place of worker 1 at the store ends by its lease, not by the release of
	// worker 2, so the other job waits for what is left of the TTL.
	hold, err := other.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("the other job has the lock, and a later token:", hold.Token() > second)
	return hold.Unlock()
}
