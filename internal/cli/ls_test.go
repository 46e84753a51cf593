//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

func TestLs(t *testing.T) {
	url, c := memory(t)
	holdfastHere("--store", url, "ls").want(t, exitOK, "NAME", "")

	lock(t, c.Mutex("b/2", holdfast.WithNote("nightly")))
	waitBehind(t, open(t, url), "b/2", 1)
	lock(t, c.RWMutex("a/1"))
	h, err := c.Semaphore("b/1", 3).Acquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Unlock() })

	r := holdfastHere("--store", url, "ls").want(t, exitOK, "", "")
	rows := strings.Split(strings.TrimSpace(r.out), "\n")
	if len(rows) != 4 {
		t.Fatalf("rows %q", rows)
	}
	for i, want := range [][]string{
		{"NAME", "KIND", "HOLD", "WAIT", "SINCE", "HOLDER"},
		{"a/1", "read/write lock", "1", "0"},
		{"b/1", "semaphore of 3", "1", "0"},
		{"b/2", "mutex", "1", "1", "(nightly)"},
	} {
		at := 0
		for _, cell := range want {
			j := strings.Index(rows[i][at:], cell)
			if j < 0 {
				t.Errorf("row %q lacks %q", rows[i], cell)
				break
			}
			at += j + len(cell)
		}
	}

	r = holdfastHere("--store", url, "ls", "--json", "b/").want(t, exitOK, "", "")
	all := objects(t, r.out)
	if len(all) != 2 || all[0]["name"] != "b/1" || all[1]["name"] != "b/2" {
		t.Fatalf("%v", all)
	}
	b2 := all[1]
	if b2["kind"] != "mutex" || b2["holders"] != 1.0 || b2["waiters"] != 1.0 || b2["age_seconds"].(float64) < 0 ||
		b2["oldest_holder"].(map[string]any)["note"] != "nightly" {
		t.Errorf("%v", b2)
	}
	holdfastHere("--store", url, "ls", "nobody/").want(t, exitOK, "NAME", "")
	holdfastHere("--store", url, "ls", "a", "b").want(t, exitUsage, "", "at most one PREFIX")
}

// TestNamesStayText: whatever somebody calls a lock, a terminal sees text.
func TestNamesStayText(t *testing.T) {
	url, c := memory(t)
	evil := "\x1b]0;owned\x07\u202e\u009b31m\nfake"
	lock(t, c.Mutex(evil))
	for _, args := range [][]string{{"ls"}, {"show", evil}, {"ls", "--json"}, {"show", "--json", evil}, {"break", "--yes", evil}} {
		r := holdfastHere(append([]string{"--store", url}, args...)...)
		if r.status != exitOK {
			t.Errorf("%v: %+v", args, r)
		}
		checkText(t, r.out+r.err)
	}
}
