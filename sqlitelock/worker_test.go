package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// While another process writes, requests wait as long as their contexts, and
// then say why; "database is locked" is not an answer.
func TestF104_Busy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d := openAt(t, path, nil)
	other := raw(t, path)
	run(t, other, "BEGIN IMMEDIATE")
	cause := errors.New("no more time")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, cause)
	defer cancel()
	tk := mutex("a:1", "n")
	for name, call := range map[string]func(context.Context) error{
		"Join":    func(ctx context.Context) error { _, err := d.Join(ctx, tk, true); return err },
		"Renew":   func(ctx context.Context) error { _, err := d.Renew(ctx, held(tk)); return err },
		"Leave":   func(ctx context.Context) error { _, err := d.Leave(ctx, held(tk)); return err },
		"Inspect": func(ctx context.Context) error { _, err := d.Inspect(ctx, "n"); return err },
		"Break":   func(ctx context.Context) error { return d.Break(ctx, "n", "a:1") },
	} {
		err := call(ctx)
		if !errors.Is(err, cause) || strings.Contains(err.Error(), "locked") {
			t.Errorf("%s: %v", name, err)
		}
		if c := driver.ClassOf(err); ctx.Err() == nil && c != driver.Unavailable {
			t.Errorf("%s: the class of %q is %v", name, err, c)
		}
	}
	done := make(chan error, 1)
	go func() {
		p, err := d.Join(context.Background(), tk, true)
		if err == nil && p.State != driver.Held {
			err = fmt.Errorf("%+v", p)
		}
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	run(t, other, "ROLLBACK")
	if err := <-done; err != nil {
		t.Error(err)
	}
	// None of those that gave up did anything.
	if line, err := d.Inspect(context.Background(), "n"); err != nil || len(line.Tickets) != 1 {
		t.Errorf("%+v, %v", line, err)
	}
}

// Close ends requests that wait for a busy file.
func TestCloseWhileBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d := openAt(t, path, nil)
	other := raw(t, path)
	run(t, other, "BEGIN IMMEDIATE")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			_, err := d.Join(context.Background(), mutex(fmt.Sprint("a:", i), "n"), true)
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("Join: %v", err)
			}
		})
	}
	until(t, "they are queued", func() bool {
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		return len(d.w.queue) > 0
	})
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// One request of a group that fails does not spoil the others.
func TestGroup(t *testing.T) {
	d := openAt(t, filepath.Join(t.TempDir(), "locks.db"), nil)
	ctx := context.Background()
	// The worker is kept in a request until the others are queued.
	block, blocked := make(chan struct{}), make(chan struct{})
	go func() {
		_ = d.w.do(ctx, false, func(sqlline.DB) ([]sqlline.Push, error) {
			close(blocked)
			<-block
			return nil, nil
		})
	}()
	<-blocked
	var wg sync.WaitGroup
	queued := 0
	queue := func(f func()) {
		wg.Go(f)
		queued++
		until(t, "it is queued", func() bool {
			d.w.mu.Lock()
			defer d.w.mu.Unlock()
			return len(d.w.queue) == queued
		})
	}
	ran := 0
	queue(func() {
		err := d.w.do(ctx, false, func(db sqlline.DB) ([]sqlline.Push, error) {
			ran++
			_, _, err := d.lines.Join(ctx, db, mutex("b:1", "counted"), "", true)
			return nil, err
		})
		if err != nil {
			t.Error(err)
		}
	})
	const n = 20
	for i := range n {
		if i == n/2 {
			queue(func() {
				err := d.w.do(ctx, false, func(sqlline.DB) ([]sqlline.Push, error) {
					return nil, d.w.conn.fail(d.w.conn.exec("INSERT INTO no_such_table VALUES (1)"))
				})
				if driver.ClassOf(err) != driver.Refused {
					t.Errorf("%v", err)
				}
			})
		}
		queue(func() {
			p, err := d.Join(ctx, mutex(fmt.Sprint("a:", i), fmt.Sprint("n", i)), true)
			if err != nil || p.State != driver.Held {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
	close(block)
	wg.Wait()
	if ran != 2 {
		t.Errorf("the request ran %d times: the group was not tried, or not taken apart", ran)
	}
	if line, err := d.Inspect(ctx, "counted"); err != nil || len(line.Tickets) != 1 {
		t.Errorf("%+v, %v", line, err)
	}
}

// The file is full: joins fail for that reason, and who holds can renew and
// leave (Leave 3).
func TestF104_Full(t *testing.T) {
	d := openAt(t, filepath.Join(t.TempDir(), "locks.db"), nil)
	ctx := context.Background()
	var ts []*driver.Ticket
	for i := range 20 {
		tk := mutex(fmt.Sprint("a:", i), fmt.Sprint("n", i))
		tk.Meta = strings.Repeat("m", 2000)
		if _, err := d.Join(ctx, tk, true); err != nil {
			t.Fatal(err)
		}
		ts = append(ts, tk)
	}
	err := d.w.do(ctx, false, func(sqlline.DB) ([]sqlline.Push, error) {
		return nil, d.w.conn.exec("PRAGMA max_page_count = 1") // as many as there are
	})
	if err != nil {
		t.Fatal(err)
	}
	var full error
	n := 0
	for ; full == nil && n < 1000; n++ {
		tk := mutex(fmt.Sprint("b:", n), fmt.Sprint("more", n))
		tk.Meta = strings.Repeat("m", 4000)
		_, full = d.Join(ctx, tk, true)
	}
	if driver.ClassOf(full) != driver.Unavailable || !strings.Contains(full.Error(), "full") {
		t.Errorf("after %d joins: %v", n, full)
	}
	for _, tk := range ts {
		if ps, err := d.Renew(ctx, held(tk)); err != nil || ps[0].State != driver.Held {
			t.Errorf("Renew: %+v, %v", ps, err)
		}
		if ps, err := d.Leave(ctx, held(tk)); err != nil || ps[0].State != driver.Held {
			t.Errorf("Leave: %+v, %v", ps, err)
		}
	}
}

// Somebody damages the file, or takes it away, while it is open.
func TestF104_DamagedWhileOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "locks.db")
	d := openAt(t, path, &Options{CreateDir: true})
	told := watched(t, d)
	ctx := context.Background()
	first := mutex("a:1", "n")
	p, err := d.Join(ctx, first, true)
	if err != nil {
		t.Fatal(err)
	}
	// Another file of ours, with other tickets.
	other := filepath.Join(dir, "other.db")
	e := openAt(t, other, nil)
	if _, err := e.Join(ctx, mutex("b:1", "n"), true); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	remove(t, path)
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if ps, err := d.Renew(ctx, held(first)); err != nil || ps[0].State != driver.Gone {
		t.Errorf("Renew in another file: %+v, %v", ps, err)
	}
	if _, gaps := told.all(); gaps != 1 {
		t.Errorf("told of %d gaps", gaps)
	}
	if line, err := d.Inspect(ctx, "n"); err != nil || len(line.Tickets) != 1 || line.Tickets[0].ID != "b:1" {
		t.Errorf("%+v, %v", line, err)
	}
	if err := d.Break(ctx, "n", "b:1"); err != nil {
		t.Error(err)
	}
	if q, err := d.Join(ctx, mutex("a:2", "n"), true); err != nil || q.State != driver.Held || q.Token <= p.Token {
		t.Errorf("after %+v: %+v, %v", p, q, err)
	}

	// A stranger's file in its place is an error, and is left alone.
	remove(t, path)
	if err := os.WriteFile(path, []byte(strings.Repeat("hello", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Join(ctx, mutex("a:3", "n"), true); driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "not an SQLite database") {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) != 5000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	// And a directory that is gone.
	remove(t, path)
	until(t, "the directory is removed", func() bool { return os.RemoveAll(dir) == nil })
	if p, err := d.Join(ctx, mutex("a:5", "n"), true); err != nil || p.State != driver.Held {
		t.Errorf("%+v, %v", p, err)
	}
}

// A request whose context has ended is not tried again when the file is not
// busy any more.
func TestNotTriedAgain(t *testing.T) {
	s := &store{path: filepath.Join(t.TempDir(), "locks.db")}
	d := s.client(t).(*Driver)
	defer func() { _ = d.Close() }()
	other := raw(t, s.path)
	run(t, other, "BEGIN IMMEDIATE")
	s.stall.Lock() // the request is running when its context ends
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Join(ctx, mutex("a:1", "n"), true); driver.ClassOf(err) != driver.Unknown {
		t.Errorf("Join: %v", err)
	}
	s.stall.Unlock()
	time.Sleep(20 * time.Millisecond) // the file is busy
	run(t, other, "ROLLBACK")
	for range 3 {
		if line, err := d.Inspect(context.Background(), "n"); err != nil || len(line.Tickets) != 0 {
			t.Errorf("%+v, %v", line, err)
		}
	}
}

// A request whose context ends while it runs is unknown, and is told so soon
// (Driver 2).
func TestUnknown(t *testing.T) {
	s := &store{path: filepath.Join(t.TempDir(), "locks.db")}
	d := s.client(t).(*Driver)
	defer func() { _ = d.Close() }()
	tk := mutex("a:1", "n")
	s.stall.Lock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := d.Join(ctx, tk, true)
	if driver.ClassOf(err) != driver.Unknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Join: %v", err)
	}
	// Others are in the queue behind it, and did surely nothing.
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err = d.Join(ctx, mutex("a:2", "n"), true); driver.ClassOf(err) != driver.Unavailable {
		t.Errorf("Join: %v", err)
	}
	s.stall.Unlock()
	if line, err := d.Inspect(context.Background(), "n"); err != nil || len(line.Tickets) != 1 || line.Tickets[0].ID != "a:1" {
		t.Errorf("%+v, %v", line, err)
	}
	// The same for a batch: each ticket has the error.
	s.stall.Lock()
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	ps, err := d.Renew(ctx, held(tk))
	s.stall.Unlock()
	if err != nil || len(ps) != 1 || driver.ClassOf(ps[0].Err) != driver.Unknown {
		t.Errorf("Renew: %+v, %v", ps, err)
	}
}
