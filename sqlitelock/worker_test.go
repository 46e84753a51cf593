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
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// TestF104_BusyFileIsWaitedFor checks that requests wait for another process's
// transaction as long as their contexts allow, and then report the reason; they
// never fail with "database is locked".
func TestF104_BusyFileIsWaitedFor(t *testing.T) {
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
	// The requests that gave up changed nothing.
	if queue, err := d.Inspect(context.Background(), "n"); err != nil || len(queue.Tickets) != 1 {
		t.Errorf("%+v, %v", queue, err)
	}
}

// TestCloseWhileBusy checks that Close ends requests that wait for a busy file.
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
		d.worker.mu.Lock()
		defer d.worker.mu.Unlock()
		return len(d.worker.queue) > 0
	})
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// TestGroupFailuresStaySeparate checks that one failing request of a group does
// not affect the others.
func TestGroupFailuresStaySeparate(t *testing.T) {
	d := openAt(t, filepath.Join(t.TempDir(), "locks.db"), nil)
	ctx := context.Background()
	// A request occupies the worker until the others are queued.
	block, blocked := make(chan struct{}), make(chan struct{})
	go func() {
		_ = d.worker.do(ctx, false, func(sqlqueue.DB) ([]sqlqueue.Push, error) {
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
			d.worker.mu.Lock()
			defer d.worker.mu.Unlock()
			return len(d.worker.queue) == queued
		})
	}
	ran := 0
	queue(func() {
		err := d.worker.do(ctx, false, func(db sqlqueue.DB) ([]sqlqueue.Push, error) {
			ran++
			_, _, err := d.queues.Join(ctx, db, mutex("b:1", "counted"), "", true)
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
				err := d.worker.do(ctx, false, func(sqlqueue.DB) ([]sqlqueue.Push, error) {
					return nil, d.worker.conn.fail(d.worker.conn.exec("INSERT INTO no_such_table VALUES (1)"))
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
	if queue, err := d.Inspect(ctx, "counted"); err != nil || len(queue.Tickets) != 1 {
		t.Errorf("%+v, %v", queue, err)
	}
}

// TestF104_FullDiskRefusesJoinsOnly fills the file: joins fail for that reason,
// and holders can renew and leave (Leave 3).
func TestF104_FullDiskRefusesJoinsOnly(t *testing.T) {
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
	err := d.worker.do(ctx, false, func(sqlqueue.DB) ([]sqlqueue.Push, error) {
		return nil, d.worker.conn.exec("PRAGMA max_page_count = 1") // as many as there are
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

// TestF104_DamagedWhileOpen damages the file, or removes it, while it is open.
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
	// Another Holdfast file, with other tickets, replaces it.
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
	if queue, err := d.Inspect(ctx, "n"); err != nil || len(queue.Tickets) != 1 || queue.Tickets[0].ID != "b:1" {
		t.Errorf("%+v, %v", queue, err)
	}
	if err := d.Break(ctx, "n", "b:1"); err != nil {
		t.Error(err)
	}
	if q, err := d.Join(ctx, mutex("a:2", "n"), true); err != nil || q.State != driver.Held || q.Token <= p.Token {
		t.Errorf("after %+v: %+v, %v", p, q, err)
	}

	// A foreign file in its place is an error, and stays unchanged.
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
	// The directory is removed as well.
	remove(t, path)
	until(t, "the directory is removed", func() bool { return os.RemoveAll(dir) == nil })
	if p, err := d.Join(ctx, mutex("a:5", "n"), true); err != nil || p.State != driver.Held {
		t.Errorf("%+v, %v", p, err)
	}
}

// endWhileItRuns ends the context of a request that cannot go on, once it runs,
// and returns its error, whose class has to be Unknown. A busy machine may not
// begin with it in time: then it changes nothing, and has longer.
func endWhileItRuns(t *testing.T, ask func(context.Context) error) error {
	t.Helper()
	for limit := 20 * time.Millisecond; ; limit *= 4 {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		err := ask(ctx)
		cancel()
		if driver.ClassOf(err) == driver.Unknown && err != nil {
			return err
		}
		if err == nil || limit > 10*time.Second {
			t.Fatalf("a request that ended while it ran: %v", err)
		}
	}
}

// TestCancelledRequestIsNotRetried checks that a request whose context has
// ended is not tried again when the file is free.
func TestCancelledRequestIsNotRetried(t *testing.T) {
	s := &store{path: filepath.Join(t.TempDir(), "locks.db")}
	d := s.client(t).(*Driver)
	defer func() { _ = d.Close() }()
	other := raw(t, s.path)
	run(t, other, "BEGIN IMMEDIATE")
	s.stall.Lock() // the request is running when its context ends
	endWhileItRuns(t, func(ctx context.Context) error {
		_, err := d.Join(ctx, mutex("a:1", "n"), true)
		return err
	})
	s.stall.Unlock()
	time.Sleep(20 * time.Millisecond) // the file is busy
	run(t, other, "ROLLBACK")
	for range 3 {
		if queue, err := d.Inspect(context.Background(), "n"); err != nil || len(queue.Tickets) != 0 {
			t.Errorf("%+v, %v", queue, err)
		}
	}
}

// TestUnknownOutcomeAfterCancel checks that the outcome of a request whose
// context ends while it runs is unknown, and that the caller learns so soon
// (Driver 2).
func TestUnknownOutcomeAfterCancel(t *testing.T) {
	s := &store{path: filepath.Join(t.TempDir(), "locks.db")}
	d := s.client(t).(*Driver)
	defer func() { _ = d.Close() }()
	tk := mutex("a:1", "n")
	s.stall.Lock()
	err := endWhileItRuns(t, func(ctx context.Context) error {
		_, err := d.Join(ctx, tk, true)
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Join: %v", err)
	}
	// The requests queued behind it certainly changed nothing.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err = d.Join(ctx, mutex("a:2", "n"), true); driver.ClassOf(err) != driver.Unavailable {
		t.Errorf("Join: %v", err)
	}
	s.stall.Unlock()
	if queue, err := d.Inspect(context.Background(), "n"); err != nil || len(queue.Tickets) != 1 || queue.Tickets[0].ID != "a:1" {
		t.Errorf("%+v, %v", queue, err)
	}
	// In a batch, each ticket has the error.
	s.stall.Lock()
	endWhileItRuns(t, func(ctx context.Context) error {
		ps, err := d.Renew(ctx, held(tk))
		if err != nil || len(ps) != 1 {
			t.Errorf("Renew: %+v, %v", ps, err)
			return err
		}
		return ps[0].Err
	})
	s.stall.Unlock()
}
