//go:build linux || freebsd

package job

import (
	"syscall"
	"testing"
	"time"
)

// TestKilledGuardAndParentKillTheCommand kills the guard and then the process: the command does not
// survive that either, where a system tells a process that its parent has died.
func TestKilledGuardAndParentKillTheCommand(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	cmd := startRunner(t, f, time.Hour, time.Minute, `echo $$ >own; ps -o pgid= -p $$ >group; while :; do sleep 0.1; done`)
	own := f.pid("own")
	if err := syscall.Kill(f.pid("group"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.wait("log", "[unguarded ]")
	_ = cmd.Process.Kill()
	gone(t, own)
}
