package sqlitelock

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// TestPrintedSchema creates a file with the printed statements, and opens it.
func TestPrintedSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	run(t, raw(t, path), Schema())
	d := openAt(t, path, nil)
	if p, err := d.Join(context.Background(), mutex("a:1", "n"), true); err != nil || p.State != driver.Held {
		t.Errorf("Join: %+v, %v", p, err)
	}
}
