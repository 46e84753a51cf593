package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// idle has a worker hold many locks.
func (r *runner) idle(ctx context.Context, s Scenario, e *entry) (Figures, error) {
	held, err := e.workerGroup.all(ctx, request{Do: doHold})
	if err != nil {
		return nil, err
	}
	long := s.TTL * 2 / 3 // two rounds of renewals
	start := now() + int64(startDelay)
	used, err := e.workerGroup.all(ctx, request{Do: doIdle, Start: start, End: start + int64(long)})
	if err != nil {
		return nil, err
	}
	a := used[0]
	s.Shared = false
	s.Clients, s.Goroutines = 1, 1
	f, err := figuresOf(s, a.records, start, start+int64(long))
	if err != nil {
		return nil, err
	}
	delete(f, "per_s") // it pauses between them
	f["bytes_per_lock"], f["goroutines"] = held[0].PerLock, a.Goroutines
	f["client_cpu_us"] = float64(a.CPU) / 1e3 / (float64(s.Locks) * long.Seconds())
	if a.Counts.Renewed > 0 {
		f["requests_per_100_renewed"] = a.Counts.Renewals / a.Counts.Renewed * 100
	}
	return f, nil
}

// crash kills a holder while another waits.
func (r *runner) crash(ctx context.Context, s Scenario, e *entry) (f Figures, err error) {
	if len(r.Command) == 0 {
		return nil, errors.New("bench: a crash needs workers in processes of their own")
	}
	c, err := r.startWorkers(ctx, e.Target, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stopAll()) }()
	one := &workerGroup{workers: c.workers[:1]}
	if _, err := one.all(ctx, request{Do: doTake}); err != nil {
		return nil, err
	}
	other := &workerGroup{workers: c.workers[1:]}
	if err := c.workers[1].send(request{Do: doTake}); err != nil {
		return nil, err
	}
	// Somewhere between two renewals, and when the other surely waits.
	sleepUntil(ctx, now()+int64(200*time.Millisecond)+rand.Int64N(int64(s.TTL/3)))
	killed := now()
	_ = c.workers[0].cmd.Process.Kill()
	ctx, cancel := context.WithTimeoutCause(ctx, 60*time.Second, errors.New("nobody got the lock within 60 s"))
	defer cancel()
	got, err := other.replies(ctx)
	if err != nil {
		return nil, err
	}
	granted := got[0].records[0].granted
	if granted < killed {
		return nil, fmt.Errorf("bench: %w: the next holder had it before the first one died", ErrOverlap)
	}
	if _, err := other.all(ctx, request{Do: doDrop}); err != nil {
		return nil, err
	}
	return Figures{"recovery_ms": float64(granted-killed) / 1e6, "ttl_ms": float64(s.TTL) / 1e6}, nil
}
