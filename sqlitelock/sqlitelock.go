// Package sqlitelock keeps queues of tickets in an SQLite file, for the
// processes of one machine. The store needs no server: it is durable, and it is
// ready as soon as its path is.
//
// The file is in WAL mode, and its tables are those of package sqlqueue. Every
// process writes through one connection. A transaction is one write to the
// disk, and requests that arrive together share it. A request waits for the
// transactions of other processes as long as its context allows; it never fails
// with "database is locked".
//
// Deadlines are counted by the clock that starts with the machine and goes on
// while it sleeps. All processes of the machine share that clock, and nobody
// can set it. A restart of the machine ends every process that held a lock, so
// the first process to open the file afterwards voids its contents, except the
// tokens. Another boot id alone proves no restart, because containers may have
// one of their own. So each process keeps a lock on a file beside the database,
// and a process with another boot id cannot open the database while any such
// lock is held.
//
// A waiting client has a small file of its own beside the database. The client
// that releases the lock appends a line to that file, which notifies the waiter
// of its grant; no other process is woken. If a notification is lost, the
// renewal or the recheck of the waiting ticket makes up for it.
//
// The store has two limits. It must not lie on a network file system, because
// SQLite's own locks do not work there. And a process that is stopped (SIGSTOP)
// in the middle of a transaction stops all others until it goes on or is
// killed; holders then lose their locks, and are notified of the loss.
package sqlitelock

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// MinTTL and MaxTTL are the shortest and the longest TTL.
const (
	MinTTL = 200 * time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

var traits = driver.Traits{
	Scheme:          "sqlite",
	Fencing:         true,
	Shared:          true,
	Owner:           true,
	Fair:            true,
	Push:            true,
	PushLocal:       true,
	Marks:           true,
	SurvivesRestart: true,
	MinTTL:          MinTTL,
	MaxTTL:          MaxTTL,
	Granularity:     time.Millisecond,
}

// Driver is one client of a database file.
//
// Order of locks: mu and worker.mu are never taken one under the other. Close
// waits for the watcher under mu, so the watcher's goroutine takes neither.
type Driver struct {
	path   string // absolute, without symbolic links
	beside beside
	opt    Options
	clock  clock
	queues *sqlqueue.Queues
	worker worker

	closing sync.Once
	closed  atomic.Bool
	// hasMarks says that this driver has seen the table of marks.
	hasMarks atomic.Bool
	err      error // the result of Close

	mu    sync.Mutex // guards the setting of watch; also held while Close ends it
	watch atomic.Pointer[watcher]

	sweeper *sqlqueue.Sweeper
	sweptTo []byte // the position in the tables after the last sweep

	// The rest belongs to the worker alone.
	file  os.FileInfo // identifies the file that is open
	users users
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// clock is the source of a file's times. Tests replace it.
type clock struct {
	boot func() (time.Duration, error) // time since the machine started
	id   func() (string, error)        // names this start of the machine
	wall func() time.Time              // wall-clock time, for tokens
}

var systemClock = clock{boot: sinceBoot, id: bootID, wall: time.Now}

// read returns the times for the statements. It panics if the clock cannot be
// read: Open has read it before.
func (c *clock) read() (now, tick int64) {
	d, err := c.boot()
	if err != nil {
		panic("sqlitelock: the clock has gone: " + err.Error())
	}
	return int64(d / time.Microsecond), sqlqueue.Tick(c.wall())
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	wake := d.address()
	p, err := ask(ctx, d, false, func(db sqlqueue.DB) (driver.Status, []sqlqueue.Push, error) {
		return d.queues.Join(ctx, db, t, wake, wait)
	})
	if err == nil {
		d.countJoins(1)
	}
	return p, err
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.batch(ctx, refs, d.queues.Renew)
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.batch(ctx, refs, d.queues.Leave)
}

type batch func(context.Context, sqlqueue.DB, []driver.Ref) ([]driver.Status, []sqlqueue.Push)

// While one transaction runs, no other process can begin one. So a batch is
// split: one statement renews all its holders, but each waiter takes
// some 0.1 ms. Each transaction is a write to the disk.
const (
	holdersAtOnce = 200
	waitersAtOnce = 64
)

func (d *Driver) batch(ctx context.Context, refs []driver.Ref, do batch) ([]driver.Status, error) {
	places := make([]driver.Status, len(refs))
	var holders, others []int
	for i := range refs {
		if refs[i].State == driver.Held && !refs[i].JoinPending {
			holders = append(holders, i)
		} else {
			others = append(others, i)
		}
	}
	chunks := slices.AppendSeq(slices.Collect(slices.Chunk(holders, holdersAtOnce)), slices.Chunk(others, waitersAtOnce))
	for n, chunk := range chunks {
		err := d.runChunk(ctx, refs, chunk, places, do)
		if err == nil {
			continue
		}
		if n == 0 && driver.ClassOf(err) != driver.Unknown {
			return nil, err // nothing was done
		}
		for _, i := range chunk {
			places[i] = driver.Status{Err: err}
		}
	}
	return places, nil
}

// runChunk carries out one part of a batch in one transaction.
func (d *Driver) runChunk(ctx context.Context, refs []driver.Ref, chunk []int, places []driver.Status, do batch) error {
	// The worker may use the refs after the call has ended.
	own := make([]driver.Ref, len(chunk))
	for k, i := range chunk {
		own[k] = refs[i]
	}
	answers, err := ask(ctx, d, len(own) > 1, func(db sqlqueue.DB) ([]driver.Status, []sqlqueue.Push, error) {
		answers, pushes := do(ctx, db, own)
		return answers, pushes, nil
	})
	for k := range answers {
		places[chunk[k]] = answers[k]
	}
	return err
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return ask(ctx, d, false, func(db sqlqueue.DB) (driver.Queue, []sqlqueue.Push, error) {
		return d.queues.Inspect(ctx, db, name)
	})
}

// Names implements [driver.Driver].
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return sqlqueue.EachName(func(after []byte) ([]sqlqueue.Named, []byte, error) {
		var page []sqlqueue.Named // not read after an error: the worker may still write it
		var next []byte
		err := d.worker.do(ctx, false, func(db sqlqueue.DB) (_ []sqlqueue.Push, err error) {
			page, next, err = d.queues.Names(ctx, db, after, prefix)
			return nil, err
		})
		if err != nil {
			return nil, nil, err
		}
		d.countJoins(0)
		return page, next, nil
	}, func(name string) (bool, error) { return d.hasTickets(ctx, name) })
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	return d.worker.do(ctx, false, func(db sqlqueue.DB) ([]sqlqueue.Push, error) {
		return d.queues.Break(ctx, db, name, ticketID)
	})
}

// Close implements [driver.Driver]. The file remains, with the places in it. A request in
// which the file system does not answer cannot be ended. Close then returns an error after
// 2 s, and the file is closed when the request ends.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.closed.Store(true)
		ended := make(chan error, 1)
		go func() { ended <- d.end() }()
		limit := time.NewTimer(closeTime)
		defer limit.Stop()
		select {
		case d.err = <-ended:
		case <-limit.C:
			d.err = driver.Errorf(driver.Unknown, "%s stays open: the file system has not answered a request for %v", d.path, closeTime)
		}
	})
	return d.err
}

// closeTime is the longest time for which Close waits for the request that is under way.
const closeTime = 2 * time.Second

// end ends the worker and the watcher, and closes the file.
func (d *Driver) end() error {
	d.worker.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.watch.Swap(nil); w != nil {
		w.close()
	}
	var err error
	if d.worker.conn != nil {
		err = d.worker.conn.close()
	}
	d.users.leave()
	return err
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.checkOpen(ctx); err != nil {
		return "", err
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return "", driver.Wrap(driver.Unavailable, err)
	}
	return fmt.Sprintf("sqlite:%s#%s", d.path, fileID(info)), nil
}

func (d *Driver) checkOpen(ctx context.Context) error {
	if d.closed.Load() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// countJoins counts joins, and starts the sweeps unless they are under way.
func (d *Driver) countJoins(joins int64) {
	if !d.opt.noSweeps {
		d.sweeper.CountJoins(joins)
	}
}

// sweep removes idle rows, a few at a time, because other processes cannot
// write meanwhile.
func (d *Driver) sweep() (found sqlqueue.Swept, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sqlqueue.SweepTime)
	defer cancel()
	step, err := ask(ctx, d, false, func(db sqlqueue.DB) (s sqlqueue.Swept, _ []sqlqueue.Push, err error) {
		s, err = d.queues.Sweep(ctx, db, d.sweptTo)
		return s, nil, err
	})
	if err != nil {
		return found, err
	}
	d.sweptTo = step.Next
	for _, name := range step.Quiet {
		if _, err := d.hasTickets(ctx, name); err != nil {
			return step, err
		}
	}
	return step, nil
}

// hasTickets advances a queue and reports whether it has tickets afterwards. A
// foreign row has none.
func (d *Driver) hasTickets(ctx context.Context, name string) (hasTickets bool, err error) {
	hasTickets, err = ask(ctx, d, false, func(db sqlqueue.DB) (bool, []sqlqueue.Push, error) {
		return d.queues.HasTickets(ctx, db, name)
	})
	if sqlqueue.Foreign(err) {
		return false, nil
	}
	return hasTickets, err
}
