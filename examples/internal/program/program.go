// Package program is what the examples have in common: a flag, and a way to end.
package program

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/cli/userstore"
)

// Main runs an example with the URL of the store that -store names, which is
// that of the holdfast command unless given: a SQLite file of the user's own.
// An error is printed, and the program ends with status 1. The context ends with
// an interrupt.
func Main(run func(ctx context.Context, store string) error) {
	store := flag.String("store", "", "URL of the store (default: the file that holdfast uses)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := func() (err error) {
		if *store == "" {
			if *store, err = userstore.URL(); err != nil {
				return err
			}
		}
		return run(ctx, *store)
	}()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
