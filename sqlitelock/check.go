package sqlitelock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	return sqlqueue.RunChecks(ctx, nil,
		d.checkFileSystem, d.checkSpace, d.checkRights, d.checkJournal, d.checkSync, d.checkDamage,
		d.checkRoundTrip, d.checkClock, d.checkWake, d.checkSize)
}

func (d *Driver) checkFileSystem(context.Context) (driver.Finding, error) {
	where, err := fileSystemOf(d.path)
	if err != nil {
		return driver.Finding{}, driver.Wrap(driver.Unavailable, err)
	}
	return where.finding(d.path), nil
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

func (d *Driver) checkSpace(context.Context) (driver.Finding, error) {
	where, err := fileSystemOf(d.path)
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

func (d *Driver) checkRights(context.Context) (driver.Finding, error) {
	info, err := os.Stat(d.path)
	if err != nil {
		return driver.Finding{}, driver.Wrap(driver.Unavailable, err)
	}
	f := driver.Finding{Topic: "rights", Detail: fmt.Sprintf("the file's mode is %v", info.Mode().Perm())}
	if info.Mode().Perm()&0o002 != 0 {
		f.Level = driver.Warning
		f.Detail += ": every user of the machine can take and break locks"
		f.Advice = "chmod o-w " + d.path
	}
	return f, nil
}

func (d *Driver) checkJournal(ctx context.Context) (driver.Finding, error) {
	mode, err := d.pragma(ctx, "journal_mode")
	f := driver.Finding{Topic: "journal", Detail: "mode " + mode}
	if !strings.EqualFold(mode, "wal") {
		f.Level = driver.Problem
		f.Detail += ": somebody changed it, and a reader now blocks the writer"
		f.Advice = "PRAGMA journal_mode = WAL"
	}
	return f, err
}

func (d *Driver) checkSync(ctx context.Context) (driver.Finding, error) {
	mode, err := d.pragma(ctx, "synchronous")
	f := driver.Finding{Topic: "durability", Detail: "every change is on the disk before it is answered"}
	switch {
	case mode == "0":
		f.Level = driver.Problem
		f.Detail = "a crash of the machine may damage the file"
		f.Advice = "PRAGMA synchronous = NORMAL"
	case d.opt.Sync != SyncFull:
		f.Level = driver.Warning
		f.Detail = "a crash of the machine may lose the last changes; holds are void then in any case, tokens go by the clock"
		f.Advice = "sync=full, if the machine's clock may be wrong after a crash"
	}
	return f, err
}

func (d *Driver) checkDamage(ctx context.Context) (driver.Finding, error) {
	said, err := d.pragma(ctx, "quick_check(1)")
	f := driver.Finding{Topic: "integrity", Detail: said}
	if said != "ok" {
		f.Level = driver.Problem
		f.Advice = "stop all users of the file and remove it; the next one creates it again"
	}
	return f, err
}

// checkRoundTrip times a write that changes nothing.
func (d *Driver) checkRoundTrip(ctx context.Context) (driver.Finding, error) {
	return sqlqueue.CheckRoundTrip(20*time.Millisecond, "use a faster disk, or sync=normal", func() error {
		return d.worker.do(ctx, true, func(db sqlqueue.DB) ([]sqlqueue.Push, error) {
			return nil, db.Auto(ctx, d.queues.Touch())
		})
	})
}

func (d *Driver) checkClock(context.Context) (driver.Finding, error) {
	up, err := d.clock.boot()
	if err != nil {
		return driver.Finding{}, driver.Wrap(driver.Unavailable, err)
	}
	f := driver.Finding{Topic: "clock", Detail: fmt.Sprintf("deadlines count from the start of the machine, %v ago", up.Round(time.Second))}
	if d.clock.wall().Before(driver.Epoch) {
		f.Level = driver.Warning
		f.Detail += "; the wall clock is before " + driver.Epoch.Format(time.DateOnly) + ", so tokens would begin anew if the file were lost"
		f.Advice = "set the system's clock"
	}
	return f, nil
}

// checkWake creates a mailbox, as a waiting client does.
func (d *Driver) checkWake(context.Context) (driver.Finding, error) {
	f := driver.Finding{Topic: "wake-up", Detail: "by file notification"}
	box, address, err := d.mailbox()
	if err != nil {
		f.Level = driver.Warning
		f.Detail = fmt.Sprintf("unavailable, so waiters poll: %v", err)
		f.Advice = "give " + d.folder() + " to the file's owner, or remove it"
		return f, nil
	}
	_ = os.Remove(filepath.Join(d.folder(), address))
	_ = box.Close()
	_ = os.Remove(d.folder()) // fails if another client has a file there
	n, err := newNotifier()
	if err != nil {
		f.Level = driver.Warning
		f.Detail = fmt.Sprintf("by reading a file every %v, because the system has no file notifications left: %v", pollInterval, err)
		f.Advice = "raise the limit, on Linux fs.inotify.max_user_instances"
		return f, nil
	}
	_ = n.Close()
	return f, nil
}

func (d *Driver) checkSize(ctx context.Context) (driver.Finding, error) {
	var queues, held, waiting int64
	err := d.worker.do(ctx, false, func(db sqlqueue.DB) (_ []sqlqueue.Push, err error) {
		queues, held, waiting, err = d.queues.Count(ctx, db)
		return nil, err
	})
	if err != nil {
		return driver.Finding{}, err
	}
	size := int64(0)
	for _, name := range []string{d.path, d.path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			size += info.Size()
		}
	}
	return driver.Finding{Topic: "size", Detail: fmt.Sprintf("%d queues, %d places hold, %d wait; %d KiB", queues, held, waiting, size>>10)}, nil
}

func (d *Driver) pragma(ctx context.Context, name string) (string, error) {
	var value string
	err := d.worker.do(ctx, false, func(sqlqueue.DB) ([]sqlqueue.Push, error) {
		err := d.worker.conn.query("PRAGMA "+name, &value)
		return nil, d.worker.conn.fail(err)
	})
	if err != nil {
		return "", err
	}
	return value, nil
}
