//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestNestedRunUsesTheSameStore: a run inside a run uses the same store by itself, or is refused
// when it would need a password.
func TestNestedRunUsesTheSameStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := command(t, "--store", "sqlite:locks.db", "run", "outer", "--", "sh", "-c", `cd /; "$0" ls --json; "$0" run inner -- env`, os.Args[0])
	p.cmd.Dir = dir
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := p.start().end().want(t, 0, `"name":"outer"`, "")
	if !strings.Contains(r.out, "HOLDFAST_NAME=inner\n") || !strings.Contains(r.out, "HOLDFAST_STORE=sqlite:"+dir) && !strings.Contains(r.out, "HOLDFAST_STORE=sqlite:"+real) {
		t.Errorf("%q", r.out)
	}

	server := servers.Redis(t, servers.RedisOptions{Password: "hunter2Qx"})
	run(t, "--store", server.URL(""), "run", "outer", "--", os.Args[0], "run", "inner", "--", "true").
		want(t, exitUsage, "", "was taken out by the holdfast run that started this command")
	file := filepath.Join(dir, "store")
	if err := os.WriteFile(file, []byte(server.URL("")), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "--store-file", file, "run", "outer", "--", os.Args[0], "--store", "@"+file, "run", "inner", "--", "true").want(t, 0, "", "")

	// The file is passed on, with its password, wherever the command goes.
	p = command(t, "--store-file", "store", "run", "outer", "--", "sh", "-c", `cd /; "$0" ls --json; "$0" run inner -- env`, os.Args[0])
	p.cmd.Dir = dir
	r = p.start().end().want(t, 0, `"name":"outer"`, "")
	if !strings.Contains(r.out, "/store\n") || strings.Contains(r.out, "hunter2Qx") {
		t.Errorf("%q", r.out)
	}
}

// TestWaitForItselfIsRefused: a run that could only wait for a run around it
// says so at once, and others within that run go on.
func TestWaitForItselfIsRefused(t *testing.T) {
	t.Parallel()
	const refused = "is held by the holdfast run around this command"
	const noOwner, owner = refused + ", which would wait for itself: leave out the inner run (", ", or give both the same --owner"
	everywhere(t, func(t *testing.T, url string) {
		for _, tt := range []struct {
			outer, inner string
			status       int
			err          string
		}{
			{"a", "a", exitUsage, owner},
			{"a", "--once-per day a", exitUsage, noOwner},
			{"--once-per day a", "--once-per 1h a", exitUsage, noOwner},
			{"a", "--lead a", exitUsage, owner},
			{"a", "--wait 50s a", exitUsage, refused},
			{"a", "--no-wait a", exitNotAcquired, "held by"},
			{"a", "b", 0, ""},
			{"--owner job a", "--owner job a", 0, ""},
			{"--owner job a", "--owner other a", exitUsage, refused},
			{"--shared rw", "--shared rw", 0, ""},
			{"--shared rw", "--exclusive rw", exitUsage, refused},
			{"--exclusive rw", "--shared rw", exitUsage, refused},
			{"--slots 2 s", "--slots 2 s", 0, ""},
			{"--slots 1 one", "--slots 1 one", exitUsage, noOwner},
		} {
			args := append([]string{"--store", url, "run"}, strings.Fields(tt.outer)...)
			args = append(append(args, "--", os.Args[0], "run"), strings.Fields(tt.inner)...)
			p := command(t, append(args, "--", "echo", "in")...)
			p.limit = 30 * time.Second // one that waits for itself never ends
			r := p.start().end()
			if t.Failed() {
				t.FailNow() // each of the others would take as long
			}
			if r.status != tt.status || !strings.Contains(r.err, tt.err) || (tt.status == 0) != (r.out == "in\n") {
				t.Errorf("%s around %s: %+v, want status %d and %q", tt.outer, tt.inner, r, tt.status, tt.err)
			}
		}
		// Two runs up, with another name between.
		run(t, "--store", url, "run", "a", "--", os.Args[0], "run", "b", "--", os.Args[0], "run", "a", "--", "true").
			want(t, exitUsage, "", refused)
	})
}

// TestOrphanedRunIsNotRefused: a process that its run's command left behind waits
// for another holder as anybody does, whatever its environment says.
func TestOrphanedRunIsNotRefused(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	c := open(t, url)
	left := start(t, sh(url, "a", `(while [ ! -e go ]; do sleep 0.02; done; "`+os.Args[0]+`" run a -- touch ran; touch ended) >left 2>&1 & echo in`)...)
	left.end().want(t, 0, "in", "")
	h := lock(t, c.Mutex("a"))
	left.touch("go")
	left.says("left", "waiting for a, held by pid")
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { _, err := os.Stat(left.path("ended")); return err == nil }, func() string { return left.read("left") })
	if _, err := os.Stat(left.path("ran")); err != nil {
		t.Errorf("%v; it said %q", err, left.read("left"))
	}
}

// TestMemoryStoreWarns: a run on a store of its own process says so.
func TestMemoryStoreWarns(t *testing.T) {
	t.Parallel()
	run(t, "--store", "memory:", "run", "a", "--", "true").want(t, 0, "", "warning: memory: is a store within this process: the lock excludes nobody")
	r := run(t, "--json", "--store", "memory:jobs", "run", "a", "--", "true").want(t, 0, "", "")
	if o := objects(t, r.err); o[0]["event"] != "warning" {
		t.Errorf("%v", o)
	}
}
