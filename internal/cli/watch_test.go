//go:build unix

package cli

import (
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// TestWatch sees a lock come and go.
func TestWatch(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	c := open(t, url)
	h := lock(t, c.Mutex("a"))
	p := start(t, "--store", url, "--json", "watch", "--interval", "100ms")
	p.says("out", `"name":"a"`)
	lock(t, c.Mutex("b"))
	p.says("out", `"name":"b"`)
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		out := p.read("out")
		all := objects(t, out[:strings.LastIndex(out, "\n")+1]) // a line may be half written
		locks := all[len(all)-1]["locks"].([]any)
		return len(locks) == 1 && locks[0].(map[string]any)["name"] == "b"
	}
	eventually(t, gone, func() string { return "a did not go: " + p.read("out") })
	if n := len(objects(t, p.read("out"))); n > 4 {
		t.Errorf("%d tables of 3 states", n)
	}
	p.signal(syscall.SIGINT)
	p.end().want(t, exitOK, "", "")
}

func TestWatchTable(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	lock(t, open(t, url).Mutex("only"))
	p := start(t, "--store", url, "watch", "on")
	p.says("out", "NAME").says("out", "only")
	p.signal(syscall.SIGTERM)
	p.end().want(t, exitOK, "", "")
	holdfastHere("--store", url, "watch", "--interval", "1ms").want(t, exitUsage, "", "--interval 1ms is below 100ms")
}

// TestWatchScreen has a terminal of ten lines.
func TestWatchScreen(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	c := open(t, url)
	for i := range 20 {
		lock(t, c.Mutex(strings.Repeat("long", 20)+string(rune('a'+i))))
	}
	p := command(t, "--store", url, "watch", "--interval", "100ms")
	screen := p.onScreen(10, 40)
	screen.expect("and 13 more", 2) // it is drawn again
	screen.press("\x03")
	if p.wait(); p.cmd.ProcessState.ExitCode() != exitOK {
		t.Errorf("it ended with %v", p.cmd.ProcessState)
	}
	drawn := strings.Split(screen.shows(), "\x1b[H")[1]
	for row := range strings.SplitSeq(drawn, "\n") {
		row, _, _ = strings.Cut(row, "\x1b[K")
		if len(strings.TrimSpace(row)) >= 40 {
			t.Errorf("row %q does not fit", row)
		}
	}
	if n := strings.Count(drawn, "\n"); n > 10 {
		t.Errorf("%d lines on a screen of 10", n)
	}
}

func TestFingerprintIgnoresTime(t *testing.T) {
	l := []holdfast.LockInfo{{Name: "a", Size: 1, Holders: []holdfast.TicketInfo{{ID: "1", Left: 5}}}}
	before := fingerprint(l)
	l[0].Holders[0].Left = 4
	if fingerprint(l) != before {
		t.Error("time that passes is a change")
	}
	l[0].Holders, l[0].Waiters = nil, l[0].Holders
	if fingerprint(l) == before {
		t.Error("another state is no change")
	}
}
