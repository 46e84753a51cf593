// Package gocronholdfast lets several processes share the jobs of gocron
// schedulers: each run of a job happens in one of them.
//
// Task is the first choice. It runs a function once for each slot of time, on
// whatever machine asks first, and the function gets the context of the hold,
// which ends when the lock is lost. NewLocker and NewElector are for jobs that
// stay as they are: gocron cannot tell such a job that its lock was lost.
//
//	locker, err := gocronholdfast.NewLocker(locks, time.Hour)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
package gocronholdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
)

// Task returns a task for gocron that runs fn once for each slot of length every,
// on one machine of all that have the job: see holdfast.Client.TryOnce. Slots are
// those of holdfast.Slot; every is usually the time between two runs of the job,
// and must be the same on all machines. The context given to fn is that of the
// hold, and a child of the job's. The slot is done when fn has returned, unless
// its error matches holdfast.ErrNotDone; a fn that stops because its context ended
// returns that.
//
// The task returns nil where the slot is done, or being done, by another machine.
// Otherwise it returns TryOnce's error, which gocron passes to the job's listeners
// for errors. Do not give such a job a Locker as well.
func Task(locks *holdfast.Client, name string, every time.Duration, fn func(ctx context.Context) error, opts ...holdfast.Option) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		if err := checkEvery(every); err != nil {
			return err
		}
		_, err := locks.TryOnce(ctx, name, holdfast.Slot(time.Now(), every), fn, opts...)
		if held, ok := errors.AsType[*holdfast.HeldError](err); ok && held.Name == name {
			return nil
		}
		return err
	})
}

// ErrDone is matched by the error of a Locker whose slot another machine has done.
var ErrDone = errors.New("slot is done")

func checkEvery(every time.Duration) error {
	if every <= 0 {
		return fmt.Errorf("gocronholdfast: length of the slots is wrong: %v", every)
	}
	return nil
}
