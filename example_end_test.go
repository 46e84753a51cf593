package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// ExampleClient_Shutdown ends a program that was sent SIGTERM: the work is asked to
// stop, and its lock is released when it has.
func ExampleClient_Shutdown() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}

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

// ExampleClient_Close ends a client at once: a hold of Lock is released, and its context
// says why it has ended.
func ExampleClient_Close() {
	ctx := context.Background()
	store := memlock.NewStore()
	// These clients stand for two processes.
	locks, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	other, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close()

	hold, err := locks.Mutex("import").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	work := hold.Context()
	fmt.Println(locks.Close())
	<-work.Done()
	fmt.Println("closed:", errors.Is(context.Cause(work), holdfast.ErrClosed))
	fmt.Println(other.Do(ctx, "import", func(context.Context) error {
		fmt.Println("the other process holds")
		return nil
	}))
	// Output:
	// <nil>
	// closed: true
	// the other process holds
	// <nil>
}

// ExampleClient_TTL asks for the lease of locks that are made without WithTTL.
func ExampleClient_TTL() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	fmt.Println(locks.TTL())
	// Output: 30s
}

// ExampleHolder_LogValue logs who is in the way, each field by itself.
func ExampleHolder_LogValue() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{} // for an output that is always the same
			}
			return a
		},
	}))
	holder := holdfast.Holder{Host: "web-1", PID: 42, Note: "report for May"} // as in a HeldError
	log.Info("busy", "holder", holder)
	// Output: level=INFO msg=busy holder.host=web-1 holder.pid=42 holder.note="report for May"
}

// ExampleClient_Lead leads until ctx ends. A standby calls Lead with the same name.
func ExampleClient_Lead() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Lead(ctx, "reconciler", func(ctx context.Context) error {
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
