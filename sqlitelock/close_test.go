package sqlitelock

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// ownClose is the reason to leave out the case of a silent store that is closed.
const ownClose = "the pause is that of a file system, in which a request cannot be ended: TestF136_CloseOfASilentFile"

// giveUp sends a request that is not answered within its context.
func giveUp(t *testing.T, d driver.Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.Join(ctx, sqlcases.Ticket(1, "n"), true); err == nil {
		t.Fatal("the request was answered")
	}
}

// TestF136_CloseOfASilentFile checks that Close returns with an error while a request waits
// for the file system, and that the file is closed when the file system answers.
func TestF136_CloseOfASilentFile(t *testing.T) {
	s := &store{path: filepath.Join(t.TempDir(), "locks.db")}
	d := s.client(t).(*Driver)
	resume := s.pause()
	giveUp(t, d)
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	select {
	case err := <-closed:
		if driver.ClassOf(err) != driver.Unknown || !strings.Contains(err.Error(), s.path) {
			t.Errorf("Close: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Close waits for the file system")
	}
	resume()
	d.worker.ended.Wait()
}

// TestF136_CloseOfABusyFile checks that Close does not wait for another process that has
// locked the file.
func TestF136_CloseOfABusyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d := openAt(t, path, nil)
	mustJoinOnce(t, d)
	other, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	tx, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	giveUp(t, d)
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// mustJoinOnce creates the tables.
func mustJoinOnce(t *testing.T, d driver.Driver) {
	t.Helper()
	if _, err := d.Join(t.Context(), sqlcases.Ticket(0, "another"), true); err != nil {
		t.Fatal(err)
	}
}
