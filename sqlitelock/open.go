package sqlitelock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// appID is the application id in the header of this package's database files:
// "Hold".
const appID = 0x486f6c64

// openPatience is the longest time that Open waits for other processes.
const openPatience = 10 * time.Second

// Open opens the file at path. If there is none, it creates one with mode 0600.
// A nil o is the zero Options.
//
// Open fails and changes nothing if path leads to anything but a file of this
// package: a directory, a text, an SQLite database with other tables, a file
// that a later version wrote, or one that cannot be written. It also fails if
// the file lies on a network file system (see Options.AnyFileSystem).
func Open(ctx context.Context, path string, o *Options) (*Driver, error) {
	return open(ctx, path, o, systemClock)
}

func open(ctx context.Context, path string, o *Options, c clock) (*Driver, error) {
	if o == nil {
		o = new(Options)
	}
	if err := errors.Join(o.check(), checkPath(path)); err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	if _, err := c.boot(); err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	if path, err = prepare(path, o); err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	d := &Driver{path: path, opt: *o, clock: c, sweptTo: sqlqueue.RandomKey()}
	d.beside = beside{path, &d.opt}
	d.users.beside = d.beside
	d.queues = sqlqueue.New(sqlqueue.Dialect{Clock: d.clock.read, Types: sqlqueue.SQLiteTypes, ExtraChanges: o.later})
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	retry := backoff.Backoff{First: time.Millisecond, Last: 20 * time.Millisecond}
	for {
		err := d.ready()
		if err == nil {
			break
		}
		if !errors.Is(err, errBusy) {
			d.users.leave()
			return nil, err
		}
		if !retry.Wait(ctx) {
			d.users.leave()
			return nil, driver.Errorf(driver.Unavailable, "%s: %w: %w", path, context.Cause(ctx), errBusy)
		}
	}
	d.worker.start(d)
	d.sweeper = sqlqueue.NewSweeper(d.sweep, d.worker.spawn, d.worker.stop)
	return d, nil
}

// prepare creates the file if it is missing, and returns its path without
// symbolic links. It never opens an existing file: closing it would drop the
// locks that SQLite has on it in this process.
func prepare(path string, o *Options) (string, error) {
	dir := filepath.Dir(path)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if o.CreateDir {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return "", err
			}
		}
		where, err := fileSystemOf(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s: its directory does not exist", path)
		} else if err != nil {
			return "", err
		}
		if err := o.accept(path, where); err != nil {
			return "", err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		info, err = os.Stat(path)
		if err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", errDirectory(path)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	// SQLite would open the file for reading only, and report that much later.
	if err := writable(path); err != nil {
		return "", fmt.Errorf("%s: this user may not read and write the file: %w", path, err)
	}
	return path, o.checkLocation(path)
}

func (o *Options) accept(path string, where fileSystem) error {
	if !where.shared || o.AnyFileSystem {
		return nil
	}
	return fmt.Errorf("%s is on a file system of type %s, where locks of SQLite do not exclude other machines; "+
		"use a file on a local disk, or a store with a server (or set fs=any if only this machine uses it)", path, where.name)
}

// ready makes sure that the connection is open, and that the open file is still
// the one at the path.
func (d *Driver) ready() error {
	info, err := os.Stat(d.path)
	same := err == nil && d.worker.conn != nil && os.SameFile(info, d.file)
	if same && d.users.joined() {
		return nil
	}
	if same {
		// Another process removed the file of the users. Its users join again
		// one by one.
		_ = d.worker.conn.close()
		d.worker.conn = nil
	}
	if d.worker.conn != nil {
		// Another process removed or replaced the file. No other client can see
		// the tickets in the old file, so they are gone.
		_ = d.worker.conn.close()
		d.worker.conn = nil
		defer d.reportGap()
	}
	if err != nil || !same {
		if _, err := prepare(d.path, &d.opt); err != nil {
			return driver.Wrap(driver.Unavailable, err)
		}
		if info, err = os.Stat(d.path); err != nil {
			return driver.Wrap(driver.Unavailable, err)
		}
	}
	c, err := d.connect()
	if err != nil {
		return err
	}
	d.worker.conn, d.file = c, info
	return nil
}

// connect opens the database, and creates its tables if it is empty.
func (d *Driver) connect() (*conn, error) {
	dsn := url.URL{Scheme: "file", Path: d.path, RawQuery: "mode=rw&_error_rc=1&_dqs=0"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	db.SetMaxOpenConns(1)
	c := &conn{db: db, path: d.path, stmts: make(map[*sqlqueue.Text]*sql.Stmt)}
	if err := d.setUp(c); err != nil {
		_ = c.close()
		if errors.Is(err, errBusy) {
			return nil, errBusy
		}
		return nil, named(d.path, err)
	}
	return c, nil
}

// named adds the path to an error of SQLite, and the usual cause.
func named(path string, err error) error {
	class := driver.ClassOf(err)
	if strings.Contains(err.Error(), path) {
		return err
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case lib.SQLITE_CANTOPEN:
			return driver.Errorf(class, "%s: this user may not read and write the file, or make files beside it: %w", path, e)
		case lib.SQLITE_READONLY:
			return driver.Errorf(class, "%s: this user may not write the file: %w", path, e)
		}
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		err = e.Err
	}
	return driver.Errorf(class, "%s: %w", path, err)
}

func (d *Driver) setUp(c *conn) (err error) {
	ctx := context.Background()
	if c.c, err = c.db.Conn(ctx); err != nil {
		return classify(err, false)
	}
	// Check that the file is Holdfast's before anything is written.
	if _, err := c.examine(d.queues.Layout()); err != nil {
		return err
	}
	for _, pragma := range []string{
		"busy_timeout = 0",     // the worker waits instead: it knows the requests' contexts
		"synchronous = NORMAL", // conn.flush does the rest
		"trusted_schema = OFF",
		"temp_store = MEMORY",
		// The journal is emptied often and keeps its blocks, so that holders
		// can renew and leave when the disk is full.
		"wal_autocheckpoint = 250",
		"journal_size_limit = 8388608",
	} {
		if err := c.exec("PRAGMA " + pragma); err != nil {
			return err
		}
	}
	var mode string
	if err := c.query("PRAGMA journal_mode = WAL", &mode); err != nil {
		return err
	}
	if !strings.EqualFold(mode, "wal") {
		return driver.Errorf(driver.Refused, "the file cannot be put in WAL mode, it stays in mode %s: "+
			"its file system lacks shared memory or locks", mode)
	}
	for p, text := range map[**sql.Stmt]string{&c.begin: "BEGIN IMMEDIATE", &c.commit: "COMMIT", &c.rollback: "ROLLBACK"} {
		if *p, err = c.c.PrepareContext(ctx, text); err != nil {
			return classify(err, false)
		}
	}
	boot, err := d.clock.id()
	if err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	err = c.inTransaction(func() error { return d.setUpTables(c, boot) })
	c.failed = nil
	return err
}

// examine reports whether the database is empty. It returns an error for a
// database with other contents, unless they have this layout or an earlier one.
func (c *conn) examine(layout int64) (empty bool, err error) {
	// A single statement, because another process may be creating the tables.
	var app, version, objects int64
	err = c.query(`SELECT a.application_id, v.user_version, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_application_id a, pragma_user_version v`, &app, &version, &objects)
	switch {
	case err != nil:
		return false, err
	case app == 0 && version == 0 && objects == 0:
		return true, nil
	case app != appID:
		return false, driver.Errorf(driver.Refused, "the file is another program's database and was not changed")
	case version > layout:
		return false, driver.Errorf(driver.Refused, "a later version of Holdfast wrote the file: its layout is %d, this version knows %d; upgrade this program first", version, layout)
	case version < 1:
		return false, driver.Errorf(driver.Refused, "the file has the unknown layout %d", version)
	}
	return false, nil
}

// setUpTables creates the tables. If an earlier version created them, it
// changes them to this layout. If the machine was restarted since, it voids
// their contents. It fails if other drivers have the file open and see another
// start of the machine.
func (d *Driver) setUpTables(c *conn, boot string) error {
	ctx := context.Background()
	layout := d.queues.Layout()
	// Another process may have created the tables in the meantime.
	empty, err := c.examine(layout)
	if err != nil {
		return err
	}
	if empty {
		for _, stmt := range append(d.queues.Schema(), fmt.Sprintf("PRAGMA application_id = %d", appID), fmt.Sprintf("PRAGMA user_version = %d", layout)) {
			if err := c.exec(stmt); err != nil {
				return err
			}
		}
		if err := d.users.join(boot); err != nil {
			return err
		}
		return c.Do(ctx, d.queues.Begin(boot))
	}
	var found sqlqueue.StoreRow
	if err := c.Do(ctx, d.queues.Store(&found)); err != nil {
		return err
	}
	if found.Layout >= 1 && found.Layout < layout {
		for _, stmt := range append(d.queues.Changes(found.Layout), fmt.Sprintf("PRAGMA user_version = %d", layout)) {
			if err := c.exec(stmt); err != nil {
				return err
			}
		}
		found.Layout = layout
	}
	if found.Layout != layout {
		return driver.Errorf(driver.Refused, "the file's table of the layout is not one of this version")
	}
	if err := d.users.join(boot); err != nil {
		return err
	}
	if found.Boot == boot {
		return nil
	}
	// All drivers that have the file open see this start of the machine, and
	// the contents belong to another.
	return c.Do(ctx, d.queues.Void(boot)...)
}

func (c *conn) exec(text string) error {
	_, err := c.c.ExecContext(context.Background(), text)
	return classify(err, false)
}

func (c *conn) query(text string, dest ...any) error {
	return classify(c.c.QueryRowContext(context.Background(), text).Scan(dest...), false)
}
