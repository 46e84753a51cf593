// Package sqlitelock keeps lines of tickets in an SQLite file, for the
// processes of one machine. It is the store that needs no server: durable, and
// there as soon as a path is.
//
// The file is in WAL mode, and its tables are those of package sqlline. Every
// process writes through one connection; a transaction is one write to the
// disk, and requests that arrive together share it. Requests wait for other
// processes' transactions as long as their contexts allow; "database is
// locked" is not an answer.
//
// Deadlines are counted by the clock that starts with the machine and goes on
// while it sleeps, which all its processes share and nobody can set. Since a
// restart of the machine ends every process that held a lock, the first one to
// open the file afterwards voids what is in it, except the tokens.
//
// A waiting client has a small file of its own beside the database, and is
// told of its grant by a line that the one who released appends to it; no
// other process is woken. A notification that got lost is made good when the
// waiting ticket is renewed, or rechecked.
//
// What the store does not promise: it must not lie on a network file system,
// as SQLite's own locks do not work there. A process that is stopped (SIGSTOP)
// in the middle of a transaction stops all others until it goes on or is
// killed; holders then lose their locks, and are told.
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
	"github.com/holdfast-go/holdfast/internal/sqlline"
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
	SurvivesRestart: true,
	MinTTL:          MinTTL,
	MaxTTL:          MaxTTL,
	Granularity:     time.Millisecond,
}

// Driver is one client of a file.
type Driver struct {
	path  string // absolute, without symbolic links
	opt   Options
	clock clock
	lines *sqlline.Lines
	w     worker

	closing sync.Once
	closed  atomic.Bool
	err     error // of closing

	mu    sync.Mutex // guards the setting of watch, and taken while Close ends it
	watch atomic.Pointer[watcher]

	// The worker's own.
	file  os.FileInfo // the file that is open
	joins int         // since the last sweep
	swept []byte      // where that ended
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// clock is what a file's times are measured by. Tests have others.
type clock struct {
	boot func() (time.Duration, error) // time since the machine started
	id   func() (string, error)        // which start that was
	wall func() time.Time              // for tokens
}

var machine = clock{boot: sinceBoot, id: bootID, wall: time.Now}

// read is the clock of the statements. The clock was read when the file was
// opened, so it is there.
func (c *clock) read() (now, tick int64) {
	d, err := c.boot()
	if err != nil {
		panic("sqlitelock: the clock has gone: " + err.Error())
	}
	return int64(d / time.Microsecond), sqlline.Tick(c.wall())
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	wake := d.address()
	var p driver.Place // not to be read after an error: the worker may still write it
	err := d.w.do(ctx, false, func(db sqlline.DB) (pushes []sqlline.Push, err error) {
		d.joins++
		p, pushes, err = d.lines.Join(ctx, db, t, wake, wait)
		return pushes, err
	})
	if err != nil {
		return driver.Place{}, err
	}
	return p, nil
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return d.batch(ctx, refs, d.lines.Renew)
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return d.batch(ctx, refs, d.lines.Leave)
}

type batch func(context.Context, sqlline.DB, []driver.Ref) ([]driver.Place, []sqlline.Push)

// While one transaction runs, no other process can begin one. So a batch is
// taken apart: tickets that hold are renewed by one statement, those that wait
// one after the other.
const (
	holdersAtOnce = 200
	waitersAtOnce = 16
)

func (d *Driver) batch(ctx context.Context, refs []driver.Ref, do batch) ([]driver.Place, error) {
	places := make([]driver.Place, len(refs))
	var holders, others []int
	for i := range refs {
		if refs[i].State == driver.Held && !refs[i].Unsure {
			holders = append(holders, i)
		} else {
			others = append(others, i)
		}
	}
	parts := slices.AppendSeq(slices.Collect(slices.Chunk(holders, holdersAtOnce)), slices.Chunk(others, waitersAtOnce))
	for n, part := range parts {
		err := d.part(ctx, refs, part, places, do)
		if err == nil {
			continue
		}
		if n == 0 && driver.ClassOf(err) != driver.Unknown {
			return nil, err // nothing was done
		}
		for _, i := range part {
			places[i] = driver.Place{Err: err}
		}
	}
	return places, nil
}

// part does one part of a batch in one transaction.
func (d *Driver) part(ctx context.Context, refs []driver.Ref, part []int, places []driver.Place, do batch) error {
	// The worker may use what it is given after the call has ended.
	own := make([]driver.Ref, len(part))
	for k, i := range part {
		own[k] = refs[i]
	}
	var answers []driver.Place
	err := d.w.do(ctx, len(own) > 1, func(db sqlline.DB) (pushes []sqlline.Push, err error) {
		answers, pushes = do(ctx, db, own)
		return pushes, nil
	})
	if err != nil {
		return err
	}
	for k, i := range part {
		places[i] = answers[k]
	}
	return nil
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Line, error) {
	var line driver.Line
	err := d.w.do(ctx, false, func(db sqlline.DB) (pushes []sqlline.Push, err error) {
		line, pushes, err = d.lines.Inspect(ctx, db, name)
		return pushes, err
	})
	if err != nil {
		return driver.Line{}, err
	}
	return line, nil
}

// Names implements [driver.Driver].
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return sqlline.EachName(func(after []byte) ([]sqlline.Named, []byte, error) {
		var page []sqlline.Named // not to be read after an error: the worker may still write it
		var next []byte
		err := d.w.do(ctx, false, func(db sqlline.DB) (_ []sqlline.Push, err error) {
			page, next, err = d.lines.Names(ctx, db, after, prefix)
			return nil, err
		})
		if err != nil {
			return nil, nil, err
		}
		return page, next, nil
	}, func(name string) (bool, error) { return d.lives(ctx, name) })
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	return d.w.do(ctx, false, func(db sqlline.DB) ([]sqlline.Push, error) {
		return d.lines.Break(ctx, db, name, ticketID)
	})
}

// Close implements [driver.Driver]. The file stays, and so do the places in
// it.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.closed.Store(true)
		d.w.close()
		d.mu.Lock()
		defer d.mu.Unlock()
		if w := d.watch.Swap(nil); w != nil {
			w.close()
		}
		if d.w.conn != nil {
			d.err = d.w.conn.close()
		}
	})
	return d.err
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.before(ctx); err != nil {
		return "", err
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return "", driver.Wrap(driver.Unavailable, err)
	}
	return fmt.Sprintf("sqlite:%s#%s", d.path, fileID(info)), nil
}

func (d *Driver) before(ctx context.Context) error {
	if d.closed.Load() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// sweep removes what is of no use any more, a few rows at a time. It runs in
// the worker.
func (d *Driver) sweep() {
	if d.joins < sqlline.SweepEvery {
		return
	}
	d.joins = 0
	ctx := context.Background()
	var over []string
	d.w.serve([]*job{newJob(ctx, true, func(db sqlline.DB) (_ []sqlline.Push, err error) {
		next, names, err := d.lines.Sweep(ctx, db, d.swept)
		d.swept, over = next, names
		return nil, err
	})})
	for _, name := range over {
		d.w.serve([]*job{newJob(ctx, false, func(db sqlline.DB) ([]sqlline.Push, error) {
			_, pushes, err := d.lines.Lives(ctx, db, name)
			return pushes, err
		})})
	}
}

// lives advances a line and says whether it has tickets then. A row that is
// not ours has none.
func (d *Driver) lives(ctx context.Context, name string) (lives bool, err error) {
	err = d.w.do(ctx, false, func(db sqlline.DB) (pushes []sqlline.Push, err error) {
		lives, pushes, err = d.lines.Lives(ctx, db, name)
		return pushes, err
	})
	if sqlline.Foreign(err) {
		return false, nil
	}
	return err == nil && lives, err
}
