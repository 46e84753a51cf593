package memlock

import (
	"bytes"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func markOf(t *testing.T, d *Driver, name string) driver.Mark {
	t.Helper()
	m, err := d.Mark(bg, name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMarksShareTheStoresFate checks that a snapshot brings marks back, and that
// a store which loses its data has no marks.
func TestMarksShareTheStoresFate(t *testing.T) {
	s := NewStore()
	d := New(s)
	for _, token := range []uint64{1, 2} {
		if err := d.SetMark(bg, "n", driver.Mark{Token: token}); err != nil {
			t.Fatal(err)
		}
		if token == 1 {
			defer func(restore func()) {
				restore()
				if m := markOf(t, d, "n"); m.Token != 1 {
					t.Errorf("the restored mark has token %d, want 1", m.Token)
				}
			}(s.Snapshot())
		}
	}
	if m := markOf(t, d, "n"); m.Token != 2 {
		t.Errorf("the mark has token %d, want 2", m.Token)
	}
	s.LoseData()
	if m := markOf(t, d, "n"); m.Token != 0 {
		t.Errorf("a store without data has a mark of token %d", m.Token)
	}
}

// TestMarksAreCopies checks that a caller that changes a value changes no mark.
func TestMarksAreCopies(t *testing.T) {
	d := New(NewStore())
	value := []byte("value")
	if err := d.SetMark(bg, "n", driver.Mark{Token: 1, Value: value}); err != nil {
		t.Fatal(err)
	}
	value[0] = 'x'
	markOf(t, d, "n").Value[0] = 'y'
	if m := markOf(t, d, "n"); !bytes.Equal(m.Value, []byte("value")) {
		t.Errorf("the mark is %q", m.Value)
	}
}

// TestMarksRefuseBadCalls checks that a mark that breaks the caller's guarantees
// is refused, and that a closed driver has no marks.
func TestMarksRefuseBadCalls(t *testing.T) {
	d := New(NewStore())
	for _, m := range []driver.Mark{{}, {Token: 1, Value: make([]byte, driver.MaxMark+1)}} {
		if err := d.SetMark(bg, "n", m); driver.ClassOf(err) != driver.Refused {
			t.Errorf("SetMark of token %d with %d bytes: %v", m.Token, len(m.Value), err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Mark(bg, "n"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Mark of a closed driver: %v", err)
	}
	if err := d.SetMark(bg, "n", driver.Mark{Token: 1}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("SetMark of a closed driver: %v", err)
	}
}
