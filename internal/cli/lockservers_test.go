//go:build unix

package cli

import (
	"strconv"
	"strings"
	"testing"
)

// TestLockServersAreAStore uses two servers over one store by a URL, with the verbs of the
// command.
func TestLockServersAreAStore(t *testing.T) {
	t.Parallel()
	store := sqlite(t)
	a, b := serve(t, "--store", store), serve(t, "--store", store)
	url := "holdfast://" + strings.TrimPrefix(a.url, "http://") + "," + strings.TrimPrefix(b.url, "http://")
	on := func(args ...string) result { return run(t, append([]string{"--store", url}, args...)...) }

	r := on("doctor", "--json").want(t, exitOK, "", "")
	if !strings.Contains(r.out, "this client is local") || !strings.Contains(r.out, "group") {
		t.Errorf("doctor: %q", r.out)
	}
	h := lock(t, open(t, store).Mutex("invoice/42"))
	on("run", "--no-wait", "invoice/42", "--", "true").want(t, exitNotAcquired, "", "invoice/42")
	on("ls").want(t, exitOK, "invoice/42", "")
	on("show", "invoice/42").want(t, exitOK, "mutex", "")
	on("break", "--yes", "invoice/42").want(t, exitUnavailable, "", "no right to break")
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	out := on("run", "invoice/42", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").want(t, exitOK, "", "").out
	if token, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64); err != nil || token <= h.Token() {
		t.Errorf("run: token %q after %d: %v", out, h.Token(), err)
	}
	if out := on("ls", "--json").want(t, exitOK, "", "").out; out != "" {
		t.Errorf("left behind: %s", out)
	}
}
