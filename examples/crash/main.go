// Command crash kills a process that holds a lock. No process is left to release it: its
// lease ends by itself, and the next waiter gets the lock at most a TTL and 5 % later.
//
//	go run ./examples/crash
//	go run ./examples/crash -store redis://localhost:6379
//
// The store has to be one that processes share, such as a SQLite file.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const (
	name = "examples/crash"
	ttl  = 2 * time.Second
)

// asVictim in the environment makes this program the one that will be killed.
const asVictim = "HOLDFAST_EXAMPLE_VICTIM"

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	part := run
	if os.Getenv(asVictim) != "" {
		part = hold
	}
	if err := part(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// hold is the victim: it takes the lock, says so, and works for ever.
func hold(ctx context.Context, store string) error {
	locks, err := anylock.Open(ctx, store, holdfast.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer locks.Close()
	return locks.Do(ctx, name, func(ctx context.Context) error {
		fmt.Println(holdfast.Token(ctx, name))
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

func run(ctx context.Context, store string) error {
	locks, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()

	self, err := os.Executable()
	if err != nil {
		return err
	}
	victim := exec.CommandContext(ctx, self, "-store", store)
	victim.Env = append(os.Environ(), asVictim+"=1")
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		return err
	}
	if err := victim.Start(); err != nil {
		return err
	}
	var token uint64
	_, err = fmt.Fscan(bufio.NewReader(out), &token)
	fmt.Printf("process %d holds the lock, with token %d and a TTL of %v\n", victim.Process.Pid, token, ttl)
	_ = victim.Process.Kill() // SIGKILL: it cannot clean up
	_ = victim.Wait()
	if err != nil {
		return fmt.Errorf("the process did not say that it holds: %w", err)
	}
	fmt.Println("it was killed")

	killed := time.Now()
	next, err := locks.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("the next holder has the lock after %v\n", time.Since(killed).Round(time.Millisecond))
	if next.Token() <= token {
		return fmt.Errorf("its token %d is not above %d", next.Token(), token)
	}
	return next.Unlock()
}
