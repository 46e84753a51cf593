package sqlitelock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// groupMax is the number of requests that may share one transaction, and its
// one write to the disk.
const groupMax = 32

// While another process writes, which takes some tenths of a millisecond, the
// worker tries again: a few times after naps, and then every millisecond or
// two. Random waits keep processes out of step. More attempts would cost more
// processor time than they gain.
const (
	busyNap  = 100 * time.Microsecond
	busyNaps = 6
	busyWait = time.Millisecond
)

// A worker that wrote for turnMax without a break takes a break of turnBreak,
// so that each of the other processes has a chance to begin. A wait for the
// disk counts as a break.
const (
	turnMax   = 15 * time.Millisecond
	turnBreak = time.Millisecond
)

// A job is one request on its way to the worker and back.
type job struct {
	ctx   context.Context
	run   func(db sqlqueue.DB) ([]sqlqueue.Push, error) // runs again after a rollback
	inTx  bool                                          // run has several statements that belong in one transaction
	state atomic.Int32
	err   error
	done  chan struct{}
}

func newJob(ctx context.Context, inTx bool, f func(sqlqueue.DB) ([]sqlqueue.Push, error)) *job {
	return &job{ctx: ctx, run: f, inTx: inTx, done: make(chan struct{})}
}

// The states of a job. Its caller may take back a queued job; a running job may
// take effect.
const (
	queued = iota
	running
	takenBack
)

// worker runs the jobs of a driver, in order, on its one connection. The jobs
// that are queued when a transaction begins share it.
//
// Order of locks: mu guards queue and the closing of stop. No other lock is
// taken, and no statement runs, under it.
type worker struct {
	d         *Driver
	conn      *conn
	mu        sync.Mutex
	queue     []*job
	wake      chan struct{} // capacity 1
	stop      chan struct{} // closed by Close
	ended     sync.WaitGroup
	full      bool      // the disk was full at the last request
	turnStart time.Time // of the last break, see turnMax
}

// start starts serving d, whose connection is open.
func (w *worker) start(d *Driver) {
	w.d = d
	w.wake = make(chan struct{}, 1)
	w.stop = make(chan struct{})
	w.ended.Go(w.loop)
}

// close ends the worker, after its current transaction.
func (w *worker) close() {
	w.mu.Lock()
	close(w.stop)
	w.mu.Unlock()
	w.ended.Wait()
}

// spawn runs f on a goroutine that close waits for. It returns false if the
// worker is already closed.
func (w *worker) spawn(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stop:
		return false
	default:
	}
	w.ended.Go(f)
	return true
}

// do runs f in the worker. It returns when f is done, or soon after ctx ends.
func (w *worker) do(ctx context.Context, inTx bool, f func(sqlqueue.DB) ([]sqlqueue.Push, error)) error {
	if err := driver.Before(ctx); err != nil {
		return err
	}
	j := newJob(ctx, inTx, f)
	w.mu.Lock()
	select {
	case <-w.stop:
		w.mu.Unlock()
		return driver.ErrClosed
	default:
	}
	w.queue = append(w.queue, j)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	if j.state.CompareAndSwap(queued, takenBack) {
		return j.timeoutError()
	}
	// The job is running, which usually takes a millisecond.
	grace := time.NewTimer(20 * time.Millisecond)
	defer grace.Stop()
	select {
	case <-j.done:
		return j.err
	case <-grace.C:
		return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
	}
}

// ask runs f in the worker of d, and returns what f returns.
func ask[T any](ctx context.Context, d *Driver, inTx bool, f func(sqlqueue.DB) (T, []sqlqueue.Push, error)) (none T, err error) {
	var got T // not read after an error: the worker may still write it
	err = d.worker.do(ctx, inTx, func(db sqlqueue.DB) (pushes []sqlqueue.Push, err error) {
		got, pushes, err = f(db)
		return pushes, err
	})
	if err != nil {
		return none, err
	}
	return got, nil
}

// dequeue moves queued jobs to group, up to groupMax of them.
func (w *worker) dequeue(group []*job) []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), groupMax-len(group))
	group = append(group, w.queue[:n]...)
	w.queue = append(w.queue[:0], w.queue[n:]...)
	return group
}

func (w *worker) loop() {
	var group []*job
	w.turnStart = time.Now()
	for {
		group = w.dequeue(group[:0])
		if len(group) > 0 {
			if time.Since(w.turnStart) > turnMax {
				w.pause(turnBreak)
				w.turnStart = time.Now()
			}
			w.serve(group)
			continue
		}
		idle := time.Now()
		select {
		case <-w.wake:
			if time.Since(idle) > turnBreak {
				w.turnStart = time.Now()
			}
		case <-w.stop:
			for jobs := w.dequeue(nil); len(jobs) > 0; jobs = w.dequeue(nil) {
				for _, j := range jobs {
					j.end(driver.ErrClosed)
				}
			}
			return
		}
	}
}

// serve runs a group of jobs to its end, and notifies the clients of granted
// tickets.
func (w *worker) serve(group []*job) {
	for attempt := 0; len(group) > 0; attempt++ {
		var busy bool
		group, busy = w.try(group)
		if !busy {
			continue
		}
		if attempt < busyNaps {
			nap(busyNap/2 + rand.N(busyNap))
		} else if !w.pause(busyWait + rand.N(busyWait)) {
			for _, j := range group {
				j.end(driver.ErrClosed)
			}
			return
		}
		group = w.dequeue(group)
	}
}

// pause waits for d. It returns false if the driver is closed meanwhile.
func (w *worker) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.stop:
		return false
	}
}

// try runs a group once. It returns the jobs to try again, and whether the file
// was busy.
func (w *worker) try(group []*job) (rest []*job, busy bool) {
	for _, j := range group {
		if j.state.CompareAndSwap(queued, running) {
			rest = append(rest, j)
		}
	}
	if group = rest; len(group) == 0 {
		return nil, false
	}
	if err := w.d.ready(); err != nil {
		return w.finish(group, err)
	}
	c := w.conn
	c.failed = nil
	if w.full {
		// The journal may have no space to grow, but SQLite can write it from
		// its beginning.
		_ = c.exec("PRAGMA wal_checkpoint(RESTART)")
	}
	if len(group) == 1 && !group[0].inTx {
		pushes, err := group[0].run(c)
		w.flush()
		if c.failed != nil {
			return w.finish(group, c.failed)
		}
		w.full = false
		w.d.deliver(pushes)
		group[0].end(err)
		return nil, false
	}
	var pushes []sqlqueue.Push
	errs := make([]error, len(group))
	err := c.inTransaction(func() error {
		pushes = nil
		for i, j := range group {
			caused, err := j.run(c)
			if c.failed != nil {
				return c.failed
			}
			errs[i] = err
			pushes = append(pushes, caused...)
		}
		return nil
	})
	if err != nil {
		if len(group) > 1 && !errors.Is(err, errBusy) && driver.ClassOf(err) != driver.Unknown {
			// One of the jobs is at fault: run each of them alone.
			for _, j := range group {
				j.state.Store(queued)
				w.serve([]*job{j})
			}
			return nil, false
		}
		return w.finish(group, err)
	}
	if w.flush(); c.failed != nil {
		return w.finish(group, c.failed)
	}
	w.full = false
	w.d.deliver(pushes)
	for i, j := range group {
		j.end(errs[i])
	}
	return nil, false
}

// flush waits for the disk, if Options.Sync is SyncFull.
func (w *worker) flush() {
	if w.conn != nil && w.conn.wrote && w.d.opt.Sync == SyncFull {
		_ = w.conn.flush()
		w.turnStart = time.Now()
	}
}

// finish ends jobs with an error, or queues them again if the file was busy.
func (w *worker) finish(group []*job, err error) (rest []*job, busy bool) {
	if errors.Is(err, errBusy) {
		for _, j := range group {
			if j.ctx.Err() != nil {
				j.end(j.timeoutError())
				continue
			}
			j.state.Store(queued)
			rest = append(rest, j)
		}
		return rest, true
	}
	if full := code(err)&0xff == lib.SQLITE_FULL; full != w.full {
		if w.full = full; full {
			for _, j := range group {
				j.state.Store(queued)
			}
			return group, false // try again, with an empty journal
		}
	}
	if breaksConn(err) && w.conn != nil {
		_ = w.conn.close()
		w.conn = nil
	}
	err = named(w.d.path, err)
	for _, j := range group {
		j.end(err)
	}
	return nil, false
}

// timeoutError returns the error of a job whose context ended while the file
// was busy.
func (j *job) timeoutError() error {
	return driver.Errorf(driver.Unavailable, "%w: %w", context.Cause(j.ctx), errBusy)
}

func (j *job) end(err error) {
	j.err = err
	close(j.done)
}
