package sqlitelock

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// TestMarkSurvivesANewBoot checks that a mark outlives the start of the machine
// that voids all holds, and that a file made by Schema has the table.
func TestMarkSurvivesANewBoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	boots := []string{"first boot", "second boot"}
	for i, id := range boots {
		d, err := open(t.Context(), path, nil, clock{boot: systemClock.boot, id: func() (string, error) { return id, nil }, wall: systemClock.wall})
		if err != nil {
			t.Fatal(err)
		}
		m, err := d.Mark(t.Context(), "n")
		if err != nil || m.Token != uint64(i) {
			t.Errorf("after %q the mark is %+v, %v", id, m, err)
		}
		if err := d.SetMark(t.Context(), "n", driver.Mark{Token: uint64(i + 1)}); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
