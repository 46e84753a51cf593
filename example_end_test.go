package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// ExampleClient_Shutdown ends a program that was sent SIGTERM: the work is asked to
// stop, and its lock is released when it has.
func ExampleClient_Shutdown() {
	ctx := context.Background()
	locks := newClient(memlock.NewStore())

	begun, ended := make(chan bool), make(chan error)
	go func() {
		ended <- locks.Do(ctx, "import", func(ctx context.Context) error {
			begun <- true
			<-ctx.Done() // the work
			fmt.Println("asked to stop:", errors.Is(context.Cause(ctx), holdfast.ErrShutdown))
			return nil
		})
	}()
	<-begun
	grace, cancel := context.WithTimeout(ctx, 25*time.Second) // less than the time until SIGKILL
	defer cancel()
	fmt.Println(locks.Shutdown(grace), <-ended)
	// Output:
	// asked to stop: true
	// <nil> <nil>
}

// ExampleClient_Lead leads until ctx ends. A standby calls Lead with the same name.
func ExampleClient_Lead() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	locks := newClient(memlock.NewStore())
	defer locks.Close()

	err := locks.Lead(ctx, "reconciler", func(ctx context.Context) error {
		fmt.Println("leads, in a term with a number:", holdfast.Token(ctx, "reconciler") > 0)
		stop() // as a signal would
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// leads, in a term with a number: true
	// <nil>
}
