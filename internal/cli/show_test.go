//go:build unix

package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

func TestShow(t *testing.T) {
	url, c := memory(t)
	holdfastHere("--store", url, "show", "m").want(t, exitOK, "m: free\n", "")
	holdfastHere("--store", url, "show").want(t, exitUsage, "", "NAME is missing (see 'holdfast show --help')")
	holdfastHere("--store", url, "show", "").want(t, exitUsage, "", "NAME is empty")

	h := lock(t, c.Mutex("m", holdfast.WithOwner("job-7"), holdfast.WithNote("nightly")))
	waitBehind(t, open(t, url), "m", 1)
	host, _ := os.Hostname()
	line, err := c.Inspect(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	r := holdfastHere("--store", url, "show", "m").want(t, exitOK, "m: mutex, held by 1, 1 waiting, last token ", "")
	rows := strings.Split(strings.TrimSpace(r.out), "\n")
	if len(rows) != 4 {
		t.Fatalf("rows %q", rows)
	}
	who := fmt.Sprintf("owner job-7, pid %d on %s (nightly)", os.Getpid(), host)
	for _, want := range []string{"held", line.Holders[0].ID, who, fmt.Sprint(h.Token() &^ 255)} {
		if !strings.Contains(rows[2], want) {
			t.Errorf("row %q lacks %q", rows[2], want)
		}
	}
	for _, want := range []string{"waiting", line.Waiters[0].ID, "(patient)"} {
		if !strings.Contains(rows[3], want) {
			t.Errorf("row %q lacks %q", rows[3], want)
		}
	}

	r = holdfastHere("--store", url, "show", "--json", "m").want(t, exitOK, "", "")
	o := objects(t, r.out)
	tickets := o[0]["tickets"].([]any)
	first := tickets[0].(map[string]any)
	if len(o) != 1 || o[0]["name"] != "m" || o[0]["kind"] != "mutex" || len(tickets) != 2 ||
		first["id"] != line.Holders[0].ID || first["state"] != "held" || first["left_seconds"].(float64) <= 0 ||
		first["holder"].(map[string]any)["owner"] != "job-7" || first["holder"].(map[string]any)["pid"] != float64(os.Getpid()) {
		t.Errorf("%v", o)
	}
	if r := holdfastHere("--store", url, "show", "--json", "free"); !strings.Contains(r.out, `"kind":"free","tickets":[]`) {
		t.Errorf("%+v", r)
	}
}

func TestShowUnits(t *testing.T) {
	url, c := memory(t)
	lock(t, c.RWMutex("w"))
	r, err := c.RWMutex("r").RLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Unlock()
	s, err := c.Semaphore("s", 9).Acquire(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Unlock()
	for name, want := range map[string]string{"w": "write", "r": "read", "s": "4"} {
		out := holdfastHere("--store", url, "show", name).out
		row := strings.Fields(strings.Split(out, "\n")[2])
		if row[1] != want {
			t.Errorf("%s: units %q, want %q, in %q", name, row[1], want, out)
		}
	}
}
