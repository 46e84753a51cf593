//go:build unix

package cli

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// beat is a script that shows for how long it lives: it ignores SIGTERM and
// writes to the file beat of the process's folder again and again.
const beat = `sh -c 'trap "" TERM; echo $$ >beatpid; while :; do echo >>beat; sleep 0.02; done'`

// alive returns the time of the last sign of life of the script beat.
func (p *process) alive() time.Time {
	p.t.Helper()
	fi, err := os.Stat(p.path("beat"))
	if err != nil {
		p.t.Fatal(err)
	}
	return fi.ModTime()
}

// running says whether a process runs; zombies do not.
func running(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !os.IsNotExist(err)
	}
	state := stat[bytes.LastIndexByte(stat, ')')+2]
	return state != 'Z' && state != 'X'
}

// gone waits until the script beat does not run any more.
func (p *process) gone() {
	p.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(p.read("beatpid")))
	if err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, func() bool { return !running(p.t, pid) }, func() string { return "the command's child runs on" })
}

// TestKilledHoldfastKillsItsCommand: when holdfast is killed its command dies with it, and the
// next gets the lock when the lease has ended.
func TestKilledHoldfastKillsItsCommand(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		const ttl = 8 * time.Second
		first := start(t, sh(url, "--ttl 8s m", beat+`& trap "" TERM; while :; do sleep 0.1; done`)...).says("beat", "\n")
		second := start(t, sh(url, "m", "echo in >in; "+untilStop)...).says("err", "waiting for m")
		killed := time.Now()
		first.signal(syscall.SIGKILL)
		first.gone()
		second.says("in", "in").touch("stop")
		second.end().want(t, 0, "in", "")
		fi, err := os.Stat(second.path("in"))
		if err != nil {
			t.Fatal(err)
		}
		if entered := fi.ModTime(); !first.alive().Before(entered) {
			t.Errorf("the first was alive at %v, the second came in at %v", first.alive(), entered)
		}
		t.Logf("the second came in %v after the first was killed, the TTL is %v", fi.ModTime().Sub(killed), ttl)
	})
}

// TestStoreGoneStopsTheCommand: when the store answers no more, the command is told to stop,
// and what does not listen is killed before the lease can have ended (F1).
func TestStoreGoneStopsTheCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		make func(t *testing.T) (url string, silence func())
	}{
		{"redis stands still", func(t *testing.T) (string, func()) {
			s := servers.Redis(t, servers.RedisOptions{})
			t.Cleanup(func() { s.Resume(t) })
			return s.URL(""), func() { s.Pause(t) }
		}},
		{"redis is gone", func(t *testing.T) (string, func()) {
			s := servers.Redis(t, servers.RedisOptions{})
			return s.URL(""), func() { s.Crash(t) }
		}},
		{"sqlite is locked by another", func(t *testing.T) (string, func()) {
			url := sqlite(t)
			return url, func() { lockFile(t, strings.TrimPrefix(url, "sqlite:")) }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url, silence := tt.make(t)
			const ttl = 16 * time.Second
			script := `exec 2>/dev/null; trap 'echo told' TERM; ` + beat + `& while :; do sleep 0.02; done`
			p := start(t, append([]string{"--json"}, sh(url, "--ttl 16s --grace 8s m", script)...)...).says("beat", "\n")
			silence()
			deadline := time.Now().Add(ttl) // no renewal can have been sent later
			r := p.end().want(t, exitLost, "told", "")
			p.gone()
			if last := p.alive(); last.After(deadline) {
				t.Errorf("the command's child lived %v longer than the lease", last.Sub(deadline))
			}
			all := objects(t, r.err)
			var kinds []string
			for _, o := range all {
				kinds = append(kinds, o["event"].(string))
			}
			if got, want := strings.Join(kinds, " "), "acquired started stopping killing exit"; got != want {
				t.Errorf("events %q, want %q", got, want)
			}
			if last := all[len(all)-1]; last["by"] != "holdfast" || last["reason"] != "lock lost" {
				t.Errorf("%v", last)
			}
		})
	}
}

// lockFile holds the write lock of a SQLite file until the test ends.
func lockFile(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		db.Close()
	})
}

// TestShortOutageKeepsTheCommand: a silence that is shorter than the lease can bear does
// not disturb the command.
func TestShortOutageKeepsTheCommand(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	p := start(t, sh(s.URL(""), "--ttl 20s --grace 500ms m", untilStop)...).says("out", "in")
	s.Pause(t)
	time.Sleep(7500 * time.Millisecond) // a renewal comes after a third of the TTL
	s.Resume(t)
	time.Sleep(13 * time.Second) // until the lease of before has ended
	p.touch("stop")
	p.end().want(t, 0, "in", "")
}

// TestRunStatusWhenInDoubt: a command that listens ends by itself, and the status says that the
// lock was in doubt.
func TestRunStatusWhenInDoubt(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	p := start(t, sh(s.URL(""), "--ttl 16s --grace 8s m", `exec 2>/dev/null; trap 'echo told; exit 0' TERM; echo in; while :; do sleep 0.02; done`)...).says("out", "in")
	s.Crash(t)
	r := p.end().want(t, exitLost, "told", "lock m is in doubt, its lease ends in ")
	last := r.err[strings.LastIndex(strings.TrimSuffix(r.err, "\n"), "\n")+1:]
	if !strings.HasPrefix(last, "holdfast: lock m: the store confirmed no renewal in time: ") || !strings.Contains(last, "refused") {
		t.Errorf("the last line is %q", last)
	}
}

// TestReasonOfALossIsTheRenewal: the release of a hold in doubt fails, too, and on a busy
// machine before the reason of the loss is printed.
func TestReasonOfALossIsTheRenewal(t *testing.T) {
	var r runner
	r.noteBackgroundError(t.Context(), holdfast.BackgroundErrorInfo{Op: "renew", Err: errors.New("renewed in vain")})
	r.noteBackgroundError(t.Context(), holdfast.BackgroundErrorInfo{Op: "leave", Err: errors.New("left in vain")})
	if got := r.lost("", nil).Error(); got != `lock "": the store confirmed no renewal in time: renewed in vain` {
		t.Error(got)
	}
}

// TestBrokenLockKillsTheCommand: an operator takes the lock away.
func TestBrokenLockKillsTheCommand(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		p := start(t, sh(url, "--ttl 9s m", beat+`& while :; do sleep 0.1; done`)...).says("beat", "\n")
		run(t, "--store", url, "break", "--yes", "m").want(t, 0, "broke the ticket of pid "+strconv.Itoa(p.cmd.Process.Pid), "")
		p.end().want(t, exitLost, "", "lost \"m\": gone from the store")
		p.gone()
	})
}

// TestF24_MaxHoldStopsTheCommand: the longest time is over. A fifth of it remains
// for the command when it is told to stop.
func TestF24_MaxHoldStopsTheCommand(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	p := start(t, sh(url, "--max-hold 20s m", `exec 2>/dev/null; trap 'echo told; exit 0' TERM; echo in; while :; do sleep 0.02; done`)...)
	p.end().want(t, exitLost, "in\ntold\n", "lock m may be held for 20s at most: stopping the command\nholdfast: lock m: --max-hold 20s is over\n")
	run(t, sh(url, "--no-wait m", "true")...).want(t, 0, "", "")
}

// TestF12_StoppedHoldfastEndsTheCommand stops holdfast itself past its lease: the guard
// ends the command before the next one comes in.
func TestF12_StoppedHoldfastEndsTheCommand(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		first := start(t, sh(url, "--ttl 9s m", beat+`& while :; do sleep 0.1; done`)...).says("beat", "\n")
		second := start(t, sh(url, "m", "echo in >in; "+untilStop)...).says("err", "waiting for m")
		first.signal(syscall.SIGSTOP)
		second.says("in", "in").touch("stop")
		second.end().want(t, 0, "in", "")
		fi, err := os.Stat(second.path("in"))
		if err != nil {
			t.Fatal(err)
		}
		first.gone()
		if entered := fi.ModTime(); !first.alive().Before(entered) {
			t.Errorf("the first was alive at %v, the second came in at %v", first.alive(), entered)
		}
		first.signal(syscall.SIGCONT)
		first.end().want(t, exitLost, "", "holdfast: ")
	})
}

// TestGuardReportsInJSON checks that, with --json, the guard's report is an event too,
// with the lock's name.
func TestGuardReportsInJSON(t *testing.T) {
	t.Parallel()
	const name = `a "name" of <two> \words`
	p := start(t, "--json", "--store", sqlite(t), "run", name, "--", "sleep", "100")
	p.says("err", `"started"`)
	p.signal(syscall.SIGKILL)
	p.says("err", `"killing"`)
	var last map[string]any
	for _, last = range objects(t, p.read("err")) {
		if last["name"] != name {
			t.Errorf("%v", last)
		}
	}
	when, err := time.Parse(time.RFC3339, fmt.Sprint(last["time"]))
	if last["event"] != "killing" || last["by"] != "guard" || !strings.Contains(fmt.Sprint(last["reason"]), "holdfast itself has ended") ||
		err != nil || time.Since(when).Abs() > time.Minute {
		t.Errorf("the last event is %v", last)
	}
}

// TestKilledWaiterBlocksForItsTTL: one that waits and is killed does not hold up the line for
// longer than its TTL.
func TestKilledWaiterBlocksForItsTTL(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		first := start(t, sh(url, "m", untilStop)...).says("out", "in")
		second := start(t, sh(url, "--ttl 2s m", "echo ran")...).says("err", "waiting for m")
		third := start(t, sh(url, "m", untilStop)...).says("err", "waiting for m")
		second.signal(syscall.SIGKILL)
		first.touch("stop")
		third.says("out", "in").touch("stop")
		third.end().want(t, 0, "in", "")
		if second.read("out") != "" {
			t.Error("the killed one ran")
		}
	})
}
