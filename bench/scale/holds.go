package scale

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

// watched is how long the renewals of held locks are watched: two thirds of the
// default TTL, in which each is renewed twice.
const watched = holdfast.DefaultTTL * 2 / 3

// holds measures locks that one client holds, with the default TTL.
func (r *run) holds(ctx context.Context) (err error) {
	const of = "holds"
	locks, err := anylock.Open(ctx, r.store.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	empty, before := r.bytes(), heap()
	var held []*holdfast.Hold
	defer func() {
		began := time.Now()
		n := len(held)
		err = errors.Join(err, r.eachBy(context.WithoutCancel(ctx), workers, 0, n, func(_ context.Context, i int) error { return held[i].Unlock() }))
		if err == nil && n > 0 {
			r.add(of, "unlock each, 64 at a time", "µs", n, float64(time.Since(began))/float64(n)/float64(time.Microsecond))
		}
	}()
	for _, n := range r.Holds {
		first := len(held)
		more := make([]*holdfast.Hold, n-first)
		began := time.Now()
		err := r.each(ctx, first, n, func(ctx context.Context, i int) error {
			h, err := locks.Mutex(fmt.Sprintf("scale/held/%06d", i)).Lock(context.WithoutCancel(ctx))
			more[i-first] = h
			return err
		})
		for _, h := range more {
			if h != nil {
				held = append(held, h)
			}
		}
		if err != nil {
			return fmt.Errorf("%d holds: %w", n, err)
		}
		r.add(of, "lock each, 64 at a time", "µs", n, float64(time.Since(began))/float64(n-first)/float64(time.Microsecond))
		if kept := r.bytes(); kept > 0 {
			r.add(of, "kept for each", "bytes", n, (kept-empty)/float64(n))
		}
		r.add(of, "client memory for each", "bytes", n, (heap()-before)/float64(n))
		server, own := r.cpu(), ownCPU()
		if err := pause(ctx, watched); err != nil {
			return err
		}
		if r.store.CPU != nil {
			r.add(of, "server CPU to keep them, a second", "ms", n, float64(r.cpu()-server)/watched.Seconds()/float64(time.Millisecond))
		}
		r.add(of, "client CPU to keep them, a second", "ms", n, float64(ownCPU()-own)/watched.Seconds()/float64(time.Millisecond))
		if err := r.probe(ctx, of, n, map[string]func() string{"of another name": func() string { return "scale/other" }}); err != nil {
			return err
		}
		for _, h := range held {
			if err := h.Err(); err != nil {
				return fmt.Errorf("%d holds: one was lost: %w", n, err)
			}
		}
	}
	return nil
}

// heap returns the bytes of live memory.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
