package gocronholdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
)

// locker is a gocron.Locker whose locks are slots of Once.
type locker struct {
	locks *holdfast.Client
	every time.Duration
	opts  []holdfast.Option
}

// NewLocker returns a Locker for gocron.WithDistributedLocker, or for one job. A
// run of a job takes the slot of length every that begins at the time of the run,
// by holdfast.Slot, and the mutex of the job's name; so all jobs of the scheduler
// have the same every, and each has its own name. Lock blocks for at most four round
// trips. Its error matches ErrDone where another machine has done the slot, and
// holdfast.ErrHeld while another is doing it; otherwise it is TryOnce's. Unlock
// records the slot as done, and releases the lock. It blocks for two round trips. Its
// error tells a loss of the lock, or that the slot was not recorded; gocron drops it.
//
// A Locker can neither leave a slot of a failed job open nor tell a job that the
// lock was lost. Task does both. With an Elector gocron asks no Locker.
func NewLocker(locks *holdfast.Client, every time.Duration, opts ...holdfast.Option) (gocron.Locker, error) {
	if err := checkEvery(every); err != nil {
		return nil, err
	}
	return &locker{locks: locks, every: every, opts: opts}, nil
}

// run is one run of a job, from Lock to Unlock.
type run struct {
	began  chan struct{} // closed when the lock is held
	finish chan struct{} // closed by Unlock
	ended  chan error    // has the outcome of TryOnce
}

// Lock implements gocron.Locker.
func (l *locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	slot := holdfast.Slot(time.Now(), l.every)
	r := &run{began: make(chan struct{}), finish: make(chan struct{}), ended: make(chan error, 1)}
	go func() { // until Unlock, which waits for it; or until Lock returns an error
		done, err := l.locks.TryOnce(ctx, key, slot, func(context.Context) error {
			close(r.began)
			<-r.finish // also without the lock: the job goes on until Unlock
			return nil
		}, l.opts...)
		if err == nil && !done.Here {
			err = fmt.Errorf("gocronholdfast: job %q, slot %s: %w by %s", key, slot.Format(time.RFC3339), ErrDone, by(done))
		}
		r.ended <- err
	}()
	select {
	case <-r.began:
		return r, nil
	case err := <-r.ended:
		return nil, err
	}
}

// by names who did a slot.
func by(done holdfast.Done) string {
	who := holdfast.Holder{Host: done.By.Host, PID: done.By.PID, Via: done.By.Via}
	if who == (holdfast.Holder{}) {
		return "another machine"
	}
	return who.String()
}

// Unlock implements gocron.Lock. The context, which has often ended, is not used.
func (r *run) Unlock(context.Context) error {
	close(r.finish)
	return <-r.ended
}
