// Command cron makes a report once for each hour, though every host has the same line
// in its crontab. The slot is the hour, so a host whose clock is late does not make the
// report again: it is told which host made it.
//
//	go run ./examples/cron
//	go run ./examples/cron -store redis://localhost:6379
//
// Run it again within the hour: no host makes the report. In a crontab the command does
// the same: holdfast run --once-per 1h report -- ./report
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

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// host makes the report of an hour, unless another host does or has done so.
func host(ctx context.Context, store, name string, hour time.Time) (holdfast.Done, error) {
	locks, err := anylock.Open(ctx, store, holdfast.WithNote(name))
	if err != nil {
		return holdfast.Done{}, err
	}
	defer locks.Close()
	return locks.Once(ctx, "examples/cron", hour, func(context.Context) error {
		time.Sleep(20 * time.Millisecond) // the report
		return nil
	})
}

func run(ctx context.Context, store string) error {
	hour := holdfast.Slot(time.Now(), time.Hour)
	var done [3]holdfast.Done
	var errs [3]error
	var all sync.WaitGroup
	for i := range done {
		all.Go(func() { done[i], errs[i] = host(ctx, store, fmt.Sprint("host ", i+1), hour) })
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	made := 0
	for _, d := range done {
		if d.Here {
			made++
		}
	}
	fmt.Printf("3 hosts asked, %d made the report\n", made)

	late, err := host(ctx, store, "host 4", hour)
	if err != nil {
		return err
	}
	fmt.Printf("host 4 asks late, and hears that %s made it\n", late.By.Note)
	return nil
}
