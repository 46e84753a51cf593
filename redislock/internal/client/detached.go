package client

import (
	"context"

	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Detached makes the calls of a driver on a library that may ignore contexts:
// each waits for its answer on a goroutine of its own.
type Detached struct {
	life   Life
	poller Poller
}

// NewDetached returns a Detached in a driver's life.
func NewDetached(l Life) *Detached { return &Detached{life: l} }

// Call calls do and returns its result, or an error as soon as ctx or the life
// ends.
func (d *Detached) Call(ctx context.Context, do func() (wire.Reply, error)) (wire.Reply, error) {
	if Endless(ctx) {
		return do()
	}
	b := d.poller.Begin(ctx)
	defer d.poller.End(b)
	type answer struct {
		r   wire.Reply
		err error
	}
	ch := make(chan answer, 1)
	if !d.life.Begin(func() {
		r, err := do()
		ch <- answer{r, err}
	}) {
		return wire.Reply{}, ErrOver
	}
	select {
	case a := <-ch:
		return a.r, a.err
	case <-b.Done():
		return wire.Reply{}, Ended(ctx)
	case <-d.life.Done:
		return wire.Reply{}, ErrCut
	}
}
