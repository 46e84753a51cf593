//go:build unix

// Command shutdown ends a service at SIGTERM. The requests end first. Then Shutdown asks
// the other work to stop, keeps its lock until the work has stopped, and returns. Only
// then does another client get the lock.
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
	"net/http"
	"os/signal"
	"syscall"
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

// serve is the service. It ends with SIGTERM.
func serve(ctx context.Context, store string, work func(ctx context.Context) error) error {
	term, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	locks, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()
	srv := &http.Server{Addr: "127.0.0.1:0"}
	serving, working := make(chan error, 1), make(chan error, 1)
	go func() { serving <- srv.ListenAndServe() }()
	go func() { working <- locks.Do(ctx, name, work) }()

	<-term.Done()
	grace, cancel := context.WithTimeout(ctx, 25*time.Second) // less than the time until SIGKILL
	defer cancel()
	err = errors.Join(srv.Shutdown(grace), locks.Shutdown(grace), <-working)
	if ended := <-serving; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

func run(ctx context.Context, store string) error {
	other, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer other.Close()
	err = serve(ctx, store, func(ctx context.Context) error {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil { // as systemd does
			return err
		}
		<-ctx.Done()
		fmt.Println("the work is asked to stop:", context.Cause(ctx))
		time.Sleep(time.Second) // it writes down what it has done
		_, err := other.Mutex(name).TryLock(context.WithoutCancel(ctx))
		if !errors.Is(err, holdfast.ErrHeld) {
			return fmt.Errorf("another client holds beside the work: %v", err)
		}
		fmt.Println("the work ends; until now another client is refused")
		return nil
	})
	if err != nil {
		return err
	}
	hold, err := other.Mutex(name).TryLock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("Shutdown has returned, and another client holds")
	return hold.Unlock()
}
