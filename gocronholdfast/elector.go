package gocronholdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
)

// ErrNotLeader is matched by the error of IsLeader while another machine leads,
// or none.
var ErrNotLeader = errors.New("not the leader")

// Elector is a gocron.Elector: of all machines that campaign for one name, one
// schedules jobs. Make it with NewElector. Its methods may be called from several
// goroutines.
//
// gocron asks at the start of each run of a job. A job that is running goes on
// when its machine loses the lead, beside the next leader's; use Task for a job
// that must not overlap.
type Elector struct {
	stop  context.CancelFunc
	term  atomic.Pointer[context.Context] // of the current term, or nil
	done  chan struct{}                   // closed when Lead has returned
	ended error                           // the error of Lead, once done is closed
}

// NewElector returns an Elector that campaigns for the mutex of this name, by
// holdfast.Client.Lead, until Close or the end of ctx. It does not block.
func NewElector(ctx context.Context, locks *holdfast.Client, name string, opts ...holdfast.Option) *Elector {
	ctx, stop := context.WithCancel(ctx)
	e := &Elector{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.ended = locks.Lead(ctx, name, e.lead, opts...)
	}()
	return e
}

// lead is the leader's work: it says so until the term ends.
func (e *Elector) lead(ctx context.Context) error {
	e.term.Store(&ctx)
	defer e.term.Store(nil)
	<-ctx.Done()
	return context.Cause(ctx)
}

// IsLeader implements gocron.Elector. It returns nil while this machine leads. The
// error matches ErrNotLeader, and wraps the reason when the campaign has ended. It
// asks no server and does not block.
func (e *Elector) IsLeader(context.Context) error {
	if term := e.term.Load(); term != nil && (*term).Err() == nil {
		return nil
	}
	select {
	case <-e.done:
		if e.ended != nil {
			return fmt.Errorf("gocronholdfast: %w: %w", ErrNotLeader, e.ended)
		}
		return fmt.Errorf("gocronholdfast: %w: the campaign has ended", ErrNotLeader)
	default:
		return fmt.Errorf("gocronholdfast: %w", ErrNotLeader)
	}
}

// Close ends the campaign and gives up the lead. It blocks until the lock is
// released, and returns the error of Lead, which is nil unless the campaign had
// failed before. Shut the scheduler down first: the next leader starts at once.
func (e *Elector) Close() error {
	e.stop()
	<-e.done
	return e.ended
}
