// Command cron runs a job once for each hour, though every host has the same
// line in its crontab. The lock keeps two hosts from working at the same time.
// That is not enough: the clocks of hosts differ, and a host that is late finds
// the lock free and the job done. So the job notes, under the lock, which hour
// it was done for.
//
//	go run ./examples/cron
//	go run ./examples/cron -store redis://localhost:6379
//
// In a crontab the command does it: holdfast run --no-wait nightly -- backup
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/examples/internal/program"
)

const hosts, hours = 4, 3

func main() { program.Main(run) }

// book stands for a row of the database: the last hour that is done.
type book struct {
	hour  int
	times [hours + 1]int // how often the job was done for each
}

func run(ctx context.Context, store string) error {
	var done book
	for hour := 1; hour <= hours; hour++ {
		var all sync.WaitGroup
		said := make([]string, hosts+1)
		errs := make([]error, hosts+1)
		for host := 1; host <= hosts; host++ {
			if host == hosts { // its clock is late
				all.Wait()
			}
			all.Go(func() { said[host], errs[host] = tick(ctx, store, fmt.Sprint("host ", host), hour, &done) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		fmt.Printf("hour %d: done %d time(s); host %d, which is late: %s\n", hour, done.times[hour], hosts, said[hosts])
	}
	return nil
}

// tick runs the job on one host in one hour.
func tick(ctx context.Context, store, host string, hour int, done *book) (said string, err error) {
	locks, err := anylock.Open(ctx, store, holdfast.WithNote(host))
	if err != nil {
		return "", err
	}
	defer locks.Close()

	hold, err := locks.Mutex("examples/cron").TryLock(ctx)
	if held := (*holdfast.HeldError)(nil); errors.As(err, &held) {
		return "nothing to do, " + held.Holder.Note + " is at it", nil
	}
	if err != nil {
		return "", err
	}
	defer hold.Unlock()
	if done.hour >= hour {
		return "nothing to do, it is done", nil
	}
	time.Sleep(20 * time.Millisecond) // the job
	done.hour = hour
	done.times[hour]++
	return "did it", hold.Err() // nil: nobody else held in the meantime
}
