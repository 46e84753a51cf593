//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/sqlitelock"
)

// TestForeignTextStaysText: another program of this store writes what it likes
// where ids, owners, names and notes are. Nothing of it acts on a terminal.
func TestForeignTextStaysText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	url := "sqlite:" + path
	d, err := sqlitelock.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	const evil = "\x1b]0;owned\x07\x1b[31m\u202e\u009b31m\r\nholdfast: fake\u2028\x00"
	ours, err := json.Marshal(map[string]string{"o": evil, "h": evil, "n": evil})
	if err != nil {
		t.Fatal(err)
	}
	for i, meta := range []string{string(ours), evil, `{"n":"` + evil + `"}`} {
		name := "line" + evil + string(rune('a'+i))
		tk := &driver.Ticket{ID: "a" + evil + ":1", Owner: "o" + evil, Name: name, Units: 1, Limit: 1, TTL: time.Hour, Meta: meta}
		if p, err := d.Join(context.Background(), tk, true); err != nil || p.State != driver.Held {
			t.Fatalf("%+v, %v", p, err)
		}
		for _, args := range [][]string{
			{"ls"}, {"show", name}, {"ls", "--json"}, {"show", "--json", name},
			{"run", "--no-wait", name, "--", "true"}, {"run", "--json", "--no-wait", name, "--", "true"},
			{"run", "--wait", "10ms", name, "--", "true"}, {"run", "--json", "--wait", "10ms", name, "--", "true"},
			{"break", "--ticket", "no" + evil, name}, {"break", "--yes", "--ticket", tk.ID, name},
		} {
			r := holdfastHere(append([]string{"--store", url}, args...)...)
			if r.out+r.err == "" {
				t.Errorf("%q said nothing", args)
			}
			checkText(t, r.out)
			checkText(t, r.err)
			if t.Failed() {
				t.Fatalf("%q: %+v", args, r)
			}
		}
	}
}
