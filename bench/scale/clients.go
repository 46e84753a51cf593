package scale

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

// idleTime is how long idle clients are watched.
const idleTime = 10 * time.Second

// settleTime is how long new clients are left alone before: they end what their last
// wait began, such as listening, only after a while.
const settleTime = 35 * time.Second

// clients measures clients that have waited for a lock once and are idle since.
func (r *run) clients(ctx context.Context) (err error) {
	const of = "clients"
	var idle []*holdfast.Client
	defer func() {
		for _, c := range idle {
			err = errors.Join(err, c.Close())
		}
	}()
	pair := make([]*holdfast.Client, 2)
	for i := range pair {
		if pair[i], err = anylock.Open(ctx, r.store.URL); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pair[i].Close()) }()
	}
	if err := r.pingPong(ctx, of, 0, pair); err != nil {
		return err
	}
	const busy = "scale/busy"
	held, err := pair[0].Mutex(busy).Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Unlock()) }()
	memory, goroutines, sockets, server := heap(), runtime.NumGoroutine(), r.sockets(), r.resident()
	for _, n := range r.Clients {
		first := len(idle)
		more := make([]*holdfast.Client, n-first)
		err := r.eachBy(ctx, 8, first, n, func(ctx context.Context, i int) error {
			c, err := anylock.Open(ctx, r.store.URL)
			if err != nil {
				return err
			}
			more[i-first] = c
			return waitOnce(ctx, c, fmt.Sprintf("scale/client/%04d", i), busy)
		})
		for _, c := range more {
			if c != nil {
				idle = append(idle, c)
			}
		}
		if err != nil {
			return fmt.Errorf("%d clients: %w", n, err)
		}
		r.add(of, "memory of each in its process", "bytes", n, (heap()-memory)/float64(n))
		r.add(of, "goroutines of each", "", n, float64(runtime.NumGoroutine()-goroutines)/float64(n))
		if now := r.sockets(); now > 0 {
			r.add(of, "connections of each", "", n, float64(now-sockets)/float64(n))
		}
		if now := r.resident(); now > 0 {
			r.add(of, "resident memory of the server for each", "bytes", n, (now-server)/float64(n))
		}
		if err := pause(ctx, settleTime); err != nil {
			return err
		}
		before, own := r.cpu(), ownCPU()
		if err := pause(ctx, idleTime); err != nil {
			return err
		}
		if r.store.CPU != nil {
			r.add(of, "server CPU of idle clients, a second", "ms", n, float64(r.cpu()-before)/idleTime.Seconds()/float64(time.Millisecond))
		}
		r.add(of, "client CPU of idle clients, a second", "ms", n, float64(ownCPU()-own)/idleTime.Seconds()/float64(time.Millisecond))
		if err := r.pingPong(ctx, of, n, pair); err != nil {
			return err
		}
	}
	return nil
}

// pause blocks for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waitOnce makes a client one that has locked and has waited in the store: pushes flow
// to it. Another client holds the lock of the name busy.
func waitOnce(ctx context.Context, c *holdfast.Client, name, busy string) error {
	h, err := c.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := c.Mutex(busy).Lock(short); !errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(fmt.Errorf("a wait for a lock that is held ended: %w", err), h.Unlock())
	}
	return h.Unlock()
}

// pingPong measures hand-offs between two clients beside n idle ones.
func (r *run) pingPong(ctx context.Context, of string, n int, pair []*holdfast.Client) error {
	const name = "scale/pair"
	var all, cpu []float64
	for range rounds {
		var values []float64
		var used time.Duration
		h, err := pair[0].Mutex(name).Lock(ctx)
		if err != nil {
			return err
		}
		for i := range cycles / 2 {
			type taken struct {
				h   *holdfast.Hold
				err error
				at  time.Time
			}
			next := make(chan taken, 1)
			go func() {
				h, err := pair[(i+1)%2].Mutex(name).Lock(ctx)
				next <- taken{h, err, time.Now()}
			}()
			if err := r.queued(ctx, name, 2); err != nil {
				return errors.Join(err, h.Unlock())
			}
			before, began := r.cpu(), time.Now()
			if err := h.Unlock(); err != nil {
				return err
			}
			t := <-next
			if t.err != nil {
				return t.err
			}
			h = t.h
			values = append(values, float64(t.at.Sub(began))/float64(time.Microsecond))
			used += r.cpu() - before
		}
		if err := h.Unlock(); err != nil {
			return err
		}
		all = append(all, median(values))
		cpu = append(cpu, float64(used)/(cycles/2)/float64(time.Microsecond))
	}
	r.add(of, "hand-off between two others, p50", "µs", n, all...)
	if r.store.CPU != nil {
		r.add(of, "hand-off between two others, server CPU", "µs", n, cpu...)
	}
	return nil
}

// queued blocks until the queue of a name has n tickets.
func (r *run) queued(ctx context.Context, name string, n int) error {
	for {
		q, err := r.drv.Inspect(ctx, name)
		if err != nil || len(q.Tickets) >= n {
			return err
		}
		select {
		case <-time.After(200 * time.Microsecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
