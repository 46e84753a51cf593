package sqlitelock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	c := checks{d}
	return sqlqueue.RunChecks(ctx, nil,
		c.checkFileSystem, c.checkSpace, c.checkRights, c.checkJournal, c.checkSync, c.checkDamage,
		c.checkRoundTrip, c.checkClock, c.checkWake, c.checkSize)
}

// checks are the parts of Check.
type checks struct{ d *Driver }

func (c checks) checkFileSystem(context.Context) (driver.Finding, error) {
	where, err := fileSystemOf(c.d.path)
	if err != nil {
		return driver.Finding{}, driver.Wrap(driver.Unavailable, err)
	}
	return where.finding(c.d.path), nil
}

func (where fileSystem) finding(path string) driver.Finding {
	f := driver.Finding{Topic: "file system", Detail: fmt.Sprintf("%s is on %s", path, where.name)}
	if where.shared {
		f.Level = driver.Problem
		f.Detail += ", which other machines may reach: SQLite's locks do not exclude them"
		f.Advice = "move the file to a local disk, or use a store with a server"
	} else if where.unknown {
		f.Level = driver.Warning
		f.Detail += ", which Holdfast does not know: if other machines can reach it, SQLite's locks do not exclude them"
		f.Advice = "make sure that it is a local disk"
	}
	return f
}

func (c checks) checkSpace(context.Context) (driver.Finding, error) {
	where, err := fileSystemOf(c.d.path)
	if err != nil {
		return driver.Finding{}, driver.Wrap(driver.Unavailable, err)
	}
	f := driver.Finding{Topic: "free space", Detail: fmt.Sprintf("%d MiB", where.free>>20)}
	const little = 64 << 20
	if where.free < little || where.files < 100 {
		f.Level = driver.Warning
		f.Detail += fmt.Sprintf(", %d files", where.files)
		f.Advice = "free some space: on a full disk no client can join"
	}
	return f, nil
}

func (c checks) checkRights(context.Context) (driver.Finding, error) {
	info, err := os.Stat(c.d.path)
	if err != nil {
		return driver.Finding{}, driver.Wrap(driver.Unavailable, err)
	}
	f := driver.Finding{Topic: "rights", Detail: fmt.Sprintf("the file's mode is %v", info.Mode().Perm())}
	if info.Mode().Perm()&0o002 != 0 {
		f.Level = driver.Warning
		f.Detail += ": every user of the machine can take and break locks"
		f.Advice = "chmod o-w " + c.d.path
	}
	return f, nil
}

func (c checks) checkJournal(ctx context.Context) (driver.Finding, error) {
	mode, err := c.pragma(ctx, "journal_mode")
	f := driver.Finding{Topic: "journal", Detail: "mode " + mode}
	if !strings.EqualFold(mode, "wal") {
		f.Level = driver.Problem
		f.Detail += ": somebody changed it, and a reader now blocks the writer"
		f.Advice = "PRAGMA journal_mode = WAL"
	}
	return f, err
}

func (c checks) checkSync(ctx context.Context) (driver.Finding, error) {
	mode, err := c.pragma(ctx, "synchronous")
	f := driver.Finding{Topic: "durability", Detail: "every change is on the disk before it is answered"}
	switch {
	case mode == "0":
		f.Level = driver.Problem
		f.Detail = "a crash of the machine may damage the file"
		f.Advice = "PRAGMA synchronous = NORMAL"
	case c.d.opt.Sync != SyncFull:
		f.Level = driver.Warning
		f.Detail = "a crash of the machine may lose the last changes; holds are void then in any case, tokens go by the clock"
		f.Advice = "sync=full, if the machine's clock may be wrong after a crash"
	}
	return f, err
}

func (c checks) checkDamage(ctx context.Context) (driver.Finding, error) {
	said, err := c.pragma(ctx, "quick_check(1)")
	f := driver.Finding{Topic: "integrity", Detail: said}
	if said != "ok" {
		f.Level = driver.Problem
		f.Advice = "stop all users of the file and remove it; the next one creates it again"
	}
	return f, err
}

// checkRoundTrip times a write that changes nothing.
func (c checks) checkRoundTrip(ctx context.Context) (driver.Finding, error) {
	return sqlqueue.CheckRoundTrip(20*time.Millisecond, "use a faster disk, or sync=normal", func() error {
		return c.d.worker.do(ctx, true, func(db sqlqueue.DB) ([]sqlqueue.Push, error) {
			return nil, db.Auto(ctx, c.d.queues.Touch())
		})
	})
}

func (c checks) checkClock(context.Context) (driver.Finding, error) {
	up, err := c.d.clock.boot()
	if err != nil {
		return driver.Finding{}, driver.Wrap(driver.Unavailable, err)
	}
	f := driver.Finding{Topic: "clock", Detail: fmt.Sprintf("deadlines count from the start of the machine, %v ago", up.Round(time.Second))}
	if c.d.clock.wall().Before(driver.Epoch) {
		f.Level = driver.Warning
		f.Detail += "; the wall clock is before " + driver.Epoch.Format(time.DateOnly) + ", so tokens would begin anew if the file were lost"
		f.Advice = "set the system's clock"
	}
	return f, nil
}

// checkWake creates a mailbox, as a waiting client does.
func (c checks) checkWake(context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "wake-up", Detail: "by file notification"}
	box, address, err := c.d.beside.mailbox()
	if err != nil {
		f.Level = driver.Warning
		f.Detail = fmt.Sprintf("unavailable, so waiters poll: %v", err)
		f.Advice = "give " + c.d.beside.folder() + " to the file's owner, or remove it"
		return f, nil
	}
	_ = os.Remove(filepath.Join(c.d.beside.folder(), address))
	_ = box.Close()
	_ = os.Remove(c.d.beside.folder()) // fails if another client has a file there
	n, err := fsnotify.NewWatcher()
	if err != nil {
		f.Level = driver.Warning
		f.Detail = fmt.Sprintf("by reading a file every %v, because the system has no file notifications left: %v", pollInterval, err)
		f.Advice = "raise the limit, on Linux fs.inotify.max_user_instances"
		return f, nil
	}
	_ = n.Close()
	return f, nil
}

func (c checks) checkSize(ctx context.Context) (driver.Finding, error) {
	var queues, held, waiting int64
	err := c.d.worker.do(ctx, false, func(db sqlqueue.DB) (_ []sqlqueue.Push, err error) {
		queues, held, waiting, err = c.d.queues.Count(ctx, db)
		return nil, err
	})
	if err != nil {
		return driver.Finding{}, err
	}
	size := int64(0)
	for _, name := range []string{c.d.path, c.d.path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			size += info.Size()
		}
	}
	return driver.Finding{Topic: "size", Detail: fmt.Sprintf("%d queues, %d places hold, %d wait; %d KiB", queues, held, waiting, size>>10)}, nil
}

func (c checks) pragma(ctx context.Context, name string) (string, error) {
	return ask(ctx, c.d, false, func(sqlqueue.DB) (value string, _ []sqlqueue.Push, _ error) {
		err := c.d.worker.conn.query("PRAGMA "+name, &value)
		return value, nil, c.d.worker.conn.fail(err)
	})
}
