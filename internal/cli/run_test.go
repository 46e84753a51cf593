//go:build unix

package cli

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// sh makes the arguments of a run with a shell script, in the process's folder.
func sh(url string, flags, script string) []string {
	args := append([]string{"--store", url, "run"}, strings.Fields(flags)...)
	return append(args, "--", "sh", "-c", script)
}

// TestRunsTakeTurnsInOrder: two runs of one name take turns, in order, with growing tokens.
func TestRunsTakeTurnsInOrder(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		script := `echo $HOLDFAST_TOKEN >token; ` + untilStop
		first := start(t, sh(url, "same", script)...).says("out", "in")
		second := start(t, sh(url, "same", script)...).says("err", "waiting for same, held by pid "+strconv.Itoa(first.cmd.Process.Pid))
		third := start(t, sh(url, "same", script)...).says("err", "waiting for same")
		if second.read("out") != "" || third.read("out") != "" {
			t.Fatal("two are in")
		}
		first.touch("stop")
		first.end().want(t, 0, "in", "")
		second.says("out", "in")
		if third.read("out") != "" {
			t.Fatal("the third did not wait for the second")
		}
		second.touch("stop")
		second.end().want(t, 0, "in", "")
		third.says("out", "in").touch("stop")
		third.end().want(t, 0, "in", "")
		var tokens []int
		for _, p := range []*process{first, second, third} {
			n, err := strconv.Atoi(strings.TrimSpace(p.read("token")))
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, n)
		}
		if !slices.IsSorted(tokens) || tokens[0] == tokens[1] || tokens[1] == tokens[2] {
			t.Errorf("tokens %v do not grow", tokens)
		}
	})
}

// TestExitStatuses: the command's own, and those of holdfast, each told apart.
func TestExitStatuses(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	c := open(t, url)
	lock(t, c.Mutex("held"))
	lock(t, c.RWMutex("rw"))
	for _, tt := range []struct {
		flags   string
		command []string
		status  int
		by, err string
	}{
		{"a", []string{"true"}, 0, "command", ""},
		{"a", []string{"sh", "-c", "exit 7"}, 7, "command", ""},
		{"a", []string{"sh", "-c", "exit 75"}, 75, "command", ""},
		{"a", []string{"sh", "-c", "kill -TERM $$"}, 143, "command", ""},
		{"a", []string{"sh", "-c", "kill -KILL $$"}, 137, "command", ""},
		{"a", []string{"nosuchprogram"}, 127, "holdfast", "cannot run nosuchprogram: executable file not found"},
		{"a", []string{"/no/such/program"}, 127, "holdfast", "no such file"},
		{"a", []string{"/dev/null"}, 126, "holdfast", "cannot run /dev/null: permission denied"},
		{"--owner= a", []string{"true"}, 64, "holdfast", "--owner is empty"},
		{"--max-hold 1s a", []string{"sleep", "60"}, 74, "holdfast", "--max-hold 1s is over"},
		{"--ttl 1ms a", []string{"true"}, 64, "holdfast", "below this store's minimum"},
		{"--no-wait held", []string{"true"}, 75, "holdfast", "held by pid " + strconv.Itoa(os.Getpid())},
		{"--wait 0s held", []string{"true"}, 75, "holdfast", "held by pid"},
		{"--wait 5s held", []string{"true"}, 75, "holdfast", "--wait 5s is over"}, // it bounds the opening of the store too,
		{"--shared held", []string{"true"}, 78, "holdfast", "mutex there"},
		{"--slots 3 held", []string{"true"}, 78, "holdfast", "mutex there"},
		{"rw", []string{"true"}, 78, "holdfast", "asked for by --shared or --exclusive"},
	} {
		t.Run(tt.flags+" "+strings.Join(tt.command, " "), func(t *testing.T) {
			args := append(append([]string{"--store", url, "run"}, strings.Fields(tt.flags)...), "--")
			r := run(t, append(args, tt.command...)...).want(t, tt.status, "", tt.err)
			if tt.by == "command" && r.err != "" {
				t.Errorf("it said %q", r.err)
			}
			r = run(t, append(append([]string{"--json"}, args...), tt.command...)...).want(t, tt.status, "", "")
			all := objects(t, r.err)
			last := all[len(all)-1]
			if last["event"] != "exit" || last["status"] != float64(tt.status) || last["by"] != tt.by {
				t.Errorf("the last event is %v", last)
			}
		})
	}
	if line, err := c.Inspect(t.Context(), "held"); err != nil || len(line.Holders)+len(line.Waiters) != 1 {
		t.Errorf("those who gave up left %+v, %v", line.Holders, err)
	}
}

func TestJSONEventsInOrder(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	h := lock(t, open(t, url).Mutex("m", holdfast.WithNote("first")))
	p := start(t, append([]string{"--json"}, sh(url, "m", "exit 3")...)...).says("err", `"event":"waiting"`)
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	all := objects(t, p.end().want(t, 3, "", "").err)
	var kinds []string
	for _, o := range all {
		kinds = append(kinds, o["event"].(string))
		if o["name"] != "m" || o["time"] == "" {
			t.Errorf("%v", o)
		}
	}
	if want := []string{"waiting", "acquired", "started", "exit"}; !slices.Equal(kinds, want) {
		t.Fatalf("%v, want %v", kinds, want)
	}
	if all[0]["holder"].(map[string]any)["note"] != "first" || all[1]["token"].(float64) <= float64(h.Token()) ||
		all[1]["waited_seconds"].(float64) < 0 || all[2]["pid"].(float64) <= 0 || all[3]["status"] != 3.0 {
		t.Errorf("%v", all)
	}
}

// TestInputAndEnvironment: the command has the standard files and is told what
// it holds, and nothing secret.
func TestInputAndEnvironment(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t, servers.RedisOptions{Password: "hunter2Qx"})
	p := command(t, sh(server.URL(""), "a b", `cat; env >env; echo sent >&2`)...)
	p.cmd.Args = append([]string{p.cmd.Args[0]}, "--store", server.URL(""), "run", "a b", "--", "sh", "-c", `cat; env >env; echo sent >&2`)
	p.cmd.Env = append(p.cmd.Env, "HOLDFAST_TOKEN=old", "HOLDFAST_NAME=old", "OTHER=kept")
	p.cmd.Stdin = strings.NewReader(strings.Repeat("a line\n", 50_000))
	r := p.start().end().want(t, 0, "", "")
	if r.out != strings.Repeat("a line\n", 50_000) || r.err != "sent\n" {
		t.Errorf("%d bytes of output, errors %q", len(r.out), r.err)
	}
	env := strings.Split(p.read("env"), "\n")
	for _, want := range []string{"HOLDFAST_NAME=a b", "OTHER=kept", "HOLDFAST_STORE=redis://:***@" + server.Addr()} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment lacks %s", want)
		}
	}
	for _, v := range env {
		if strings.Contains(v, "hunter2Qx") || strings.HasSuffix(v, "=old") {
			t.Errorf("the environment has %s", v)
		}
		if n, ok := strings.CutPrefix(v, "HOLDFAST_TOKEN="); ok {
			if token, err := strconv.ParseUint(n, 10, 64); err != nil || token == 0 {
				t.Errorf("token %q", n)
			}
		}
	}
}

func TestDefaultStoreOfRun(t *testing.T) {
	t.Parallel()
	p := start(t, "run", "demo", "--", "echo", "hi")
	p.end().want(t, 0, "hi\n", "")
	if _, err := os.Stat(p.path("state/holdfast/locks.db")); err != nil {
		t.Error(err)
	}
}

func TestSlotsBoundTheHolders(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		a := start(t, sh(url, "--slots 2 s", untilStop)...).says("out", "in")
		b := start(t, sh(url, "--slots 2 s", untilStop)...).says("out", "in")
		run(t, sh(url, "--slots 2 --no-wait s", "true")...).want(t, exitNotAcquired, "", "is held by pid")
		run(t, sh(url, "--slots 3 --no-wait s", "true")...).want(t, exitMismatch, "", "semaphore of 2 there, semaphore of 3 asked for")
		c := start(t, sh(url, "--slots 2 s", untilStop)...).says("err", "waiting for s")
		b.touch("stop")
		c.says("out", "in")
		for _, p := range []*process{a, c} {
			p.touch("stop")
			p.end().want(t, 0, "in", "")
		}
	})
}

func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		a := start(t, sh(url, "--shared rw", untilStop)...).says("out", "in")
		b := start(t, sh(url, "--shared rw", untilStop)...).says("out", "in")
		w := start(t, sh(url, "--exclusive rw", untilStop)...).says("err", "waiting for rw")
		run(t, sh(url, "--shared --no-wait rw", "true")...).want(t, exitNotAcquired, "", "held by")
		for _, p := range []*process{a, b} {
			p.touch("stop")
			p.end().want(t, 0, "in", "")
		}
		w.says("out", "in")
		run(t, sh(url, "--shared --no-wait rw", "true")...).want(t, exitNotAcquired, "", "held by")
		w.touch("stop")
		w.end().want(t, 0, "in", "")
	})
}

// TestRunsOfOneOwnerShareTheLock: two runs of one owner hold together, a stranger waits for both.
func TestRunsOfOneOwnerShareTheLock(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		a := start(t, sh(url, "--owner job m", untilStop)...).says("out", "in")
		b := start(t, sh(url, "--owner job m", untilStop)...).says("out", "in")
		stranger := start(t, sh(url, "m", untilStop)...).says("err", "held by owner job, pid ")
		for _, p := range []*process{a, b} {
			if stranger.read("out") != "" {
				t.Fatal("the stranger did not wait")
			}
			p.touch("stop")
			p.end().want(t, 0, "in", "")
		}
		stranger.says("out", "in").touch("stop")
		stranger.end().want(t, 0, "in", "")
	})
}

// TestDefaultNoteHasNoArguments: the default is the program's name, and none of its arguments.
func TestDefaultNoteHasNoArguments(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	c := open(t, url)
	for flags, want := range map[string]string{"a": "sh", "--note one=1 b": "one=1", "--note= c": ""} {
		name := flags[len(flags)-1:]
		p := start(t, append(sh(url, flags, untilStop), "sh", "hunter2Qx")...).says("out", "in")
		line, err := c.Inspect(t.Context(), name)
		if err != nil || len(line.Holders)+len(line.Waiters) != 1 {
			t.Fatal(line, err)
		}
		h := line.Holders[0].Holder
		if h.Note != want || h.PID != p.cmd.Process.Pid || strings.Contains(fmt.Sprint(h), "hunter2Qx") {
			t.Errorf("%s: %+v, want the note %q", flags, h, want)
		}
		p.touch("stop")
		p.end()
	}
	if got := programName("/x/" + strings.Repeat("é", 99) + "\x01"); len(got) > 100 || strings.ContainsRune(got, 1) {
		t.Errorf("note %q", got)
	}
}

// TestWaitingIsPrintedOnce: once, where standard error is no terminal.
func TestWaitingIsPrintedOnce(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	h := lock(t, open(t, url).Mutex("m", holdfast.WithNote("first")))
	loud := start(t, sh(url, "m", "true")...).says("err", "\n")
	quiet := start(t, sh(url, "--quiet m", "true")...)
	eventually(t, func() bool {
		l, err := open(t, url).Inspect(t.Context(), "m")
		return err == nil && len(l.Waiters) == 2
	}, func() string { return "they do not wait" })
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	r := loud.end().want(t, 0, "", "holdfast: waiting for m, held by pid "+strconv.Itoa(os.Getpid())+" on ")
	if strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "(first)") {
		t.Errorf("%q", r.err)
	}
	if r := quiet.end().want(t, 0, "", ""); r.err != "" {
		t.Errorf("%q", r.err)
	}
}

// TestWaitingOnTerminalUpdatesOneLine: one line that is kept up to date, and goes away.
func TestWaitingOnTerminalUpdatesOneLine(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	h := lock(t, open(t, url).Mutex("m", holdfast.WithNote("first")))
	p := command(t, sh(url, "m", "echo done")...)
	s := p.onScreen(24, 60)
	drawn := regexp.MustCompile(`waiting for m for \d+s, held by pid `)
	eventually(t, func() bool {
		first := drawn.FindString(s.shows())
		return first != "" && strings.Count(s.shows(), first) < len(drawn.FindAllString(s.shows(), -1))
	}, func() string { return "the line does not count seconds: " + s.shows() })
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	s.expect("done", 1)
	if p.wait(); p.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("%v", p.cmd.ProcessState)
	}
	shown := s.shows()
	if strings.Contains(shown, "\n") && strings.Index(shown, "\n") < strings.Index(shown, "done") {
		t.Errorf("more than one line: %q", shown)
	}
	if !strings.HasSuffix(shown[:strings.Index(shown, "done")], "\r\x1b[K") {
		t.Errorf("the line stays: %q", shown)
	}
	for line := range strings.SplitSeq(shown, "\r") {
		if line = strings.TrimSuffix(line, "\x1b[K"); len(line) >= 60 {
			t.Errorf("%q does not fit", line)
		}
	}
}

// TestSignalEndsTheWait: a signal ends the wait, and nothing of it stays.
func TestSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	c := open(t, url)
	lock(t, c.Mutex("m"))
	for s, status := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGHUP: 129, syscall.SIGQUIT: 131, syscall.SIGINT: -1} {
		p := start(t, sh(url, "m", "echo ran")...).says("err", "waiting for m")
		p.signal(syscall.SIGUSR1) // nobody to pass it on to
		p.signal(s)
		r := p.end().want(t, status, "", "ended by signal: "+s.String())
		if r.out != "" {
			t.Error("the command ran")
		}
		ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if s == syscall.SIGINT && (!ws.Signaled() || ws.Signal() != syscall.SIGINT) {
			t.Errorf("it ended with %v, want the signal itself", p.cmd.ProcessState)
		}
		if line, err := c.Inspect(t.Context(), "m"); err != nil || len(line.Waiters) != 0 {
			t.Errorf("%v left %+v, %v", s, line.Waiters, err)
		}
	}
}

// TestSignalsReachTheCommand goes through the whole program once; package job
// has the rest.
func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	url := sqlite(t)
	p := start(t, sh(url, "m", `trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo in; while :; do sleep 0.02; done`)...).says("out", "in")
	p.signal(syscall.SIGUSR1)
	p.says("out", "usr1")
	p.signal(syscall.SIGTERM)
	p.end().want(t, 5, "term", "")
	run(t, sh(url, "--no-wait m", "true")...).want(t, 0, "", "")
}
