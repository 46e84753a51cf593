//go:build unix

package cli

import (
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// TestLeadStartsTheCommandInEachTerm checks that run --lead starts its command anew in the
// next term after an operator took the lock, with a greater token, that the
// standby leads meanwhile, and that run ends with the command's status.
func TestLeadStartsTheCommandInEachTerm(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		script := `echo $HOLDFAST_TOKEN >>tokens; ` + untilStop + `; exit 3`
		first := start(t, sh(url, "--lead m", script)...).says("out", "in\n")
		second := start(t, sh(url, "--lead m", script)...).says("err", "waiting for m")
		run(t, "--store", url, "break", "--yes", "--ticket", holder(t, url, "m"), "m").want(t, 0, "broke", "")
		first.says("err", `lost "m": gone from the store`).says("err", "; campaigning again\n")
		second.says("out", "in\n")
		first.says("err", "waiting for m")
		second.touch("stop")
		second.end().want(t, 3, "in\n", "")
		first.says("out", "in\nin\n").touch("stop")
		first.end().want(t, 3, "in\nin\n", "")
		tokens := strings.Fields(first.read("tokens"))
		if len(tokens) != 2 || tokens[0] >= tokens[1] || tokens[0] >= strings.TrimSpace(second.read("tokens")) {
			t.Errorf("tokens %q, and %q of the other", tokens, second.read("tokens"))
		}
	})
}

// holder returns the id of the only holder of a name.
func holder(t *testing.T, url, name string) string {
	t.Helper()
	l, err := open(t, url).Inspect(t.Context(), name)
	if err != nil || len(l.Holders) != 1 {
		t.Fatalf("Inspect: %+v, %v", l, err)
	}
	return l.Holders[0].ID
}

// TestLeadEndsWithSignals checks that a signal ends run --lead while it waits, and
// while its command runs, which gets the signal.
func TestLeadEndsWithSignals(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	leader := start(t, sh(url, "--lead m", `trap 'echo told; exit 5' TERM; echo in; while :; do sleep 0.02; done`)...).says("out", "in")
	standby := start(t, sh(url, "--lead m", "true")...).says("err", "waiting for m")
	standby.signal(syscall.SIGTERM)
	standby.end().want(t, 143, "", "")
	leader.signal(syscall.SIGTERM)
	leader.end().want(t, 5, "told", "")
	run(t, sh(url, "--no-wait m", "true")...).want(t, 0, "", "")
}

// TestLeadAgainAfterMaxHold checks that a term that --max-hold ended is followed by
// another one, with JSON events for both.
func TestLeadAgainAfterMaxHold(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	p := start(t, append([]string{"--json"}, sh(url, "--lead --max-hold 12s m",
		`if [ -e again ]; then exit 4; fi; touch again; exec sleep 100`)...)...)
	r := p.end().want(t, 4, "", "--max-hold 12s is over")
	var events []string
	for _, e := range objects(t, r.err) {
		switch event := e["event"].(string); event {
		case "waiting", "killing": // on a slow machine
		default:
			events = append(events, event)
		}
	}
	if got, want := strings.Join(events, " "), "acquired started stopping campaigning acquired started exit"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestLeadRefusesFlags checks that --lead and the flags that bound a wait or choose
// another kind of lock are refused together, and that errors that do not pass
// end run.
func TestLeadRefusesFlags(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	for _, flag := range []string{"--wait 1s", "--no-wait", "--shared", "--exclusive", "--slots 3"} {
		run(t, sh(url, "--lead "+flag+" m", "true")...).want(t, 64, "", strings.Fields(flag)[0])
	}
	lock(t, open(t, url).RWMutex("rw", holdfast.WithNote("other kind")))
	run(t, sh(url, "--lead rw", "true")...).want(t, 78, "", "in use as another kind of lock")
	run(t, "--store", url, "run", "--lead", "m", "--", "nosuchprogram").want(t, 127, "", "cannot run nosuchprogram")
}
