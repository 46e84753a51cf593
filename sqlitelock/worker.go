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
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// groupMax is how many requests share one transaction, and its one write to
// the disk.
const groupMax = 32

// While another process writes, which takes some tenths of a millisecond, the
// worker tries again: a few times after naps, and then every millisecond or
// two. Chance keeps processes out of step. More attempts would cost the
// processor more than they gain.
const (
	busyNap  = 100 * time.Microsecond
	busyNaps = 6
	busyWait = time.Millisecond
)

// A worker that wrote for hogTime without a break makes one of hogBreak, so
// that each of the others has a chance to begin. To wait for the disk is a
// break.
const (
	hogTime  = 15 * time.Millisecond
	hogBreak = time.Millisecond
)

// A job is one request on its way to the worker and back.
type job struct {
	ctx   context.Context
	run   func(db sqlline.DB) ([]sqlline.Push, error) // may be run again, after a rollback
	whole bool                                        // several statements that belong in one transaction
	state atomic.Int32
	err   error
	done  chan struct{}
}

func newJob(ctx context.Context, whole bool, f func(sqlline.DB) ([]sqlline.Push, error)) *job {
	return &job{ctx: ctx, run: f, whole: whole, done: make(chan struct{})}
}

// The states of a job. Its caller may take it back while it is queued; while
// it runs it may take effect.
const (
	queued = iota
	running
	takenBack
)

// worker runs the jobs of a driver, in order, on its one connection. What is
// queued when a transaction begins shares it.
type worker struct {
	d     *Driver
	conn  *conn
	mu    sync.Mutex
	queue []*job
	wake  chan struct{} // has room for one
	stop  chan struct{} // closed by Close
	ended sync.WaitGroup
	full  bool      // the disk was full at the last request
	since time.Time // of the last break, see hogTime
}

// start begins to serve d, whose connection is open.
func (w *worker) start(d *Driver) {
	w.d = d
	w.wake = make(chan struct{}, 1)
	w.stop = make(chan struct{})
	w.ended.Add(1)
	go w.loop()
}

// close ends the worker, after the transaction it is in.
func (w *worker) close() {
	w.mu.Lock()
	close(w.stop)
	w.mu.Unlock()
	w.ended.Wait()
}

// do runs f in the worker. It returns when f is done or ctx ends.
func (w *worker) do(ctx context.Context, whole bool, f func(sqlline.DB) ([]sqlline.Push, error)) error {
	if err := driver.Before(ctx); err != nil {
		return err
	}
	j := newJob(ctx, whole, f)
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
		return j.late()
	}
	// It is running, which mostly takes a millisecond.
	patience := time.NewTimer(20 * time.Millisecond)
	defer patience.Stop()
	select {
	case <-j.done:
		return j.err
	case <-patience.C:
		return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
	}
}

// take moves queued jobs to group, up to groupMax of them.
func (w *worker) take(group []*job) []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), groupMax-len(group))
	group = append(group, w.queue[:n]...)
	w.queue = append(w.queue[:0], w.queue[n:]...)
	return group
}

func (w *worker) loop() {
	defer w.ended.Done()
	var group []*job
	w.since = time.Now()
	for {
		group = w.take(group[:0])
		if len(group) > 0 {
			if time.Since(w.since) > hogTime {
				w.pause(hogBreak)
				w.since = time.Now()
			}
			w.serve(group)
			w.d.sweep()
			continue
		}
		idle := time.Now()
		select {
		case <-w.wake:
			if time.Since(idle) > hogBreak {
				w.since = time.Now()
			}
		case <-w.stop:
			for jobs := w.take(nil); len(jobs) > 0; jobs = w.take(nil) {
				for _, j := range jobs {
					j.end(driver.ErrClosed)
				}
			}
			return
		}
	}
}

// serve runs a group of jobs to its end, and tells whoever was granted.
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
		group = w.take(group)
	}
}

// pause waits, and says false when the driver is closed meanwhile.
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

// try runs a group once. It returns the jobs that are to be tried again, and
// whether the file was busy.
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
		return w.settle(group, err)
	}
	c := w.conn
	c.failed = nil
	if w.full {
		// The journal may have no room to grow, but can begin anew.
		_ = c.exec("PRAGMA wal_checkpoint(RESTART)")
	}
	if len(group) == 1 && !group[0].whole {
		pushes, err := group[0].run(c)
		w.flush()
		if c.failed != nil {
			return w.settle(group, c.failed)
		}
		w.full = false
		w.d.tell(pushes)
		group[0].end(err)
		return nil, false
	}
	var pushes []sqlline.Push
	errs := make([]error, len(group))
	err := c.inside(func() error {
		pushes = nil
		for i, j := range group {
			told, err := j.run(c)
			if c.failed != nil {
				return c.failed
			}
			errs[i] = err
			pushes = append(pushes, told...)
		}
		return nil
	})
	if err != nil {
		if len(group) > 1 && !errors.Is(err, errBusy) && driver.ClassOf(err) != driver.Unknown {
			// One of them is at fault: each for itself.
			for _, j := range group {
				j.state.Store(queued)
				w.serve([]*job{j})
			}
			return nil, false
		}
		return w.settle(group, err)
	}
	if w.flush(); c.failed != nil {
		return w.settle(group, c.failed)
	}
	w.full = false
	w.d.tell(pushes)
	for i, j := range group {
		j.end(errs[i])
	}
	return nil, false
}

// flush waits for the disk, where that is wanted.
func (w *worker) flush() {
	if w.conn != nil && w.conn.wrote && w.d.opt.Sync == SyncFull {
		_ = w.conn.flush()
		w.since = time.Now()
	}
}

// settle ends jobs with an error, or queues them again if the file was busy.
func (w *worker) settle(group []*job, err error) (rest []*job, busy bool) {
	if errors.Is(err, errBusy) {
		for _, j := range group {
			if j.ctx.Err() != nil {
				j.end(j.late())
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
			return group, false // once more, with an empty journal
		}
	}
	if breaks(err) && w.conn != nil {
		_ = w.conn.close()
		w.conn = nil
	}
	err = named(w.d.path, err)
	for _, j := range group {
		j.end(err)
	}
	return nil, false
}

// late is the error of a job whose context ended while the file was busy.
func (j *job) late() error {
	return driver.Errorf(driver.Unavailable, "%w: %w", context.Cause(j.ctx), errBusy)
}

func (j *job) end(err error) {
	j.err = err
	close(j.done)
}

// reopen drops the connection; the next request opens it again.
func (d *Driver) reopen() {
	_ = d.w.do(context.Background(), false, func(sqlline.DB) ([]sqlline.Push, error) {
		err := d.w.conn.close()
		d.w.conn = nil
		d.lost()
		return nil, err
	})
}
