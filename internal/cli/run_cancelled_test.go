//go:build unix

package cli

import (
	"syscall"
	"testing"
)

// TestCancelledWorkflow goes through what GitHub's runner sends to a step of a workflow
// that is cancelled: INT, then TERM 7.5 s later, then KILL after 2.5 s more. The command
// ends with the first one that it heeds, and the next run gets the lock: at once, or
// when the lease of a killed one has ended.
func TestCancelledWorkflow(t *testing.T) {
	t.Parallel()
	const work = "echo in; while :; do sleep 0.02; done"
	t.Run("ends with INT", func(t *testing.T) {
		t.Parallel()
		url := sqlite(t)
		p := start(t, sh(url, "m", `trap 'echo int; exit 5' INT; `+work)...).says("out", "in")
		p.signal(syscall.SIGINT)
		p.end().want(t, 5, "int", "")
		run(t, sh(url, "--no-wait m", "true")...).want(t, 0, "", "")
	})
	t.Run("ends with TERM", func(t *testing.T) {
		t.Parallel()
		url := sqlite(t)
		p := start(t, sh(url, "m", `trap 'echo int' INT; trap 'echo term; exit 6' TERM; `+work)...).says("out", "in")
		p.signal(syscall.SIGINT)
		p.says("out", "int")
		run(t, sh(url, "--no-wait m", "true")...).want(t, exitNotAcquired, "", "")
		p.signal(syscall.SIGTERM)
		p.end().want(t, 6, "term", "")
		run(t, sh(url, "--no-wait m", "true")...).want(t, 0, "", "")
	})
	t.Run("is killed", func(t *testing.T) {
		t.Parallel()
		url := sqlite(t)
		p := start(t, sh(url, "--ttl 8s m", beat+`& trap 'echo int' INT; trap 'echo term' TERM; `+work)...).says("out", "in").says("beat", "\n")
		next := start(t, sh(url, "m", "echo in >in; "+untilStop)...).says("err", "waiting for m")
		p.signal(syscall.SIGINT)
		p.says("out", "int")
		p.signal(syscall.SIGTERM)
		p.says("out", "term")
		p.signal(syscall.SIGKILL)
		p.gone()
		next.says("in", "in").touch("stop")
		next.end().want(t, 0, "in", "")
	})
}
