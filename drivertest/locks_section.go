package drivertest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// criticalSection admits one goroutine at a time. It orders the memory accesses
// of the goroutines that are in it alone, also on a store that lets two in.
type criticalSection struct{ inside atomic.Int32 }

// enter reports whether it is alone; leave follows in any case.
func (r *criticalSection) enter() error {
	if n := r.inside.Add(1); n != 1 {
		return fmt.Errorf("%d inside", n)
	}
	return nil
}

func (r *criticalSection) leave() { r.inside.Add(-1) }

// counter returns a function that counts in the room.
func (r *criticalSection) counter(n *int) func(context.Context) error {
	return func(context.Context) error {
		defer r.leave()
		if err := r.enter(); err != nil {
			return err
		}
		*n++
		time.Sleep(100 * time.Microsecond) // for others to come in
		return nil
	}
}
