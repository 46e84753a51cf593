// Command leader has two replicas of a service, of which one leads. The other waits in
// the queue, and leads as soon as the first one steps down or its lease has ended. The
// context of a term ends with the term, and the token is the term's number: followers
// refuse orders of an earlier term.
//
//	go run ./examples/leader
//	go run ./examples/leader -store redis://localhost:6379
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

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// replica leads for a second, and steps down.
func replica(ctx context.Context, store, name string) error {
	locks, err := anylock.Open(ctx, store, holdfast.WithNote(name))
	if err != nil {
		return err
	}
	defer locks.Close()
	return locks.Lead(ctx, "examples/leader", func(ctx context.Context) error { // a standby waits here
		fmt.Printf("%s leads, in term %d\n", name, holdfast.Token(ctx, "examples/leader"))
		select {
		case <-time.After(time.Second): // the leader's work
			fmt.Println(name, "steps down")
			return nil
		case <-ctx.Done(): // the term has ended: Lead runs this again in the next one
			return context.Cause(ctx)
		}
	})
}

func run(ctx context.Context, store string) error {
	ended := make(chan error)
	for _, name := range []string{"ann", "bob"} {
		go func() { ended <- replica(ctx, store, name) }()
	}
	return errors.Join(<-ended, <-ended)
}
