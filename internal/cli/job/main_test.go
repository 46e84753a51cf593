//go:build unix

package job

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// adopts in the environment of a runner makes it call adopt, which makes it get
// the orphans below it, as the first process of a container does.
const adopts = "HOLDFAST_TEST_ADOPTS"

var adopt func() error // nil on systems without such processes

// TestMain makes the test binary a small program that runs a job, too. Package guard
// makes it the guard.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "runner":
			if os.Getenv(adopts) != "" {
				if err := adopt(); err != nil {
					fmt.Fprintln(os.Stderr, err)
					syscall.Exit(1)
				}
			}
			syscall.Exit(runner(os.Args[2:]))
		}
	}
	// The tests wait for other processes most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	servers.Main(m)
}

// runner runs "LEASE GRACE COMMAND...": the deadline is always LEASE away. It
// says on standard error what happens.
func runner(args []string) int {
	lease, err1 := time.ParseDuration(args[0])
	grace, err2 := time.ParseDuration(args[1])
	path, err3 := exec.LookPath(args[2])
	if err1 != nil || err2 != nil || err3 != nil {
		fmt.Fprintln(os.Stderr, err1, err2, err3)
		return 1
	}
	signals, stop := Signals()
	defer stop()
	j := &Job{
		Path: path, Args: args[2:], Env: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Deadline: func() time.Time { return time.Now().Add(lease) },
		Grace:    grace, Signals: signals,
		Notice: func(n Notice) { fmt.Fprintf(os.Stderr, "[%s %s]\n", n.Kind, n.Reason) },
	}
	res, err := j.Run()
	fmt.Fprintf(os.Stderr, "[result %d %q %v %v]\n", res.Code(), res.Stopped, res.Interrupted, err)
	return res.Code()
}

// waitFor waits for the end of a process, for as long as it may take on a
// machine that does much else. One that does not end shows its goroutines.
func waitFor(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	const limit = 2 * time.Minute
	abort := time.AfterFunc(limit, func() {
		t.Errorf("%q had not ended after %v", cmd.Args, limit)
		_ = cmd.Process.Signal(syscall.SIGABRT)
	})
	defer abort.Stop()
	kill := time.AfterFunc(limit+5*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
}

// files are the files that a job in a test reads and writes.
type files struct {
	t   *testing.T
	dir string
}

func newFiles(t *testing.T) files { return files{t, t.TempDir()} }

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

// read returns what a file contains; nothing if it is not there.
func (f files) read(name string) string {
	b, err := os.ReadFile(f.path(name))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return string(b)
}

// wait returns when a file contains text.
func (f files) wait(name, text string) {
	f.t.Helper()
	eventually(f.t, func() bool { return strings.Contains(f.read(name), text) },
		func() string { return fmt.Sprintf("%s has no %q but %q", name, text, f.read(name)) })
}

// touched returns the time of the last write of a file.
func (f files) touched(name string) time.Time {
	f.t.Helper()
	fi, err := os.Stat(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return fi.ModTime()
}

// pid reads a process id that a script wrote.
func (f files) pid(name string) int {
	f.t.Helper()
	f.wait(name, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(f.read(name)))
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// eventually waits for a condition, for as long as it may take on a machine
// that does much else.
func eventually(t *testing.T, ok func() bool, otherwise func() string) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("in vain: ", otherwise())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// onMovingMachine calls try, which returns what it found wrong, for a test of
// instants that are less than a second apart. A trial in which this process, and
// with it most likely the machine, stood still for longer than tolerance proves
// nothing if it fails, and is repeated.
func onMovingMachine(t *testing.T, tolerance time.Duration, try func() (wrong []string)) {
	t.Helper()
	for trials := 1; ; trials++ {
		stop, longest := make(chan struct{}), make(chan time.Duration)
		go func() {
			var most time.Duration
			for last := time.Now(); ; {
				select {
				case <-stop:
					longest <- most
					return
				case <-time.After(5 * time.Millisecond):
				}
				now := time.Now()
				most, last = max(most, now.Sub(last)), now
			}
		}()
		wrong := try()
		close(stop)
		still := <-longest
		if len(wrong) == 0 {
			return
		}
		if still <= tolerance || trials == 10 {
			t.Fatalf("%s; the longest standstill was %v", strings.Join(wrong, "; "), still)
		}
		t.Logf("once more, after a standstill of %v: %s", still, strings.Join(wrong, "; "))
	}
}

// running says whether a process runs. Zombies, which nobody may reap here, do
// not.
func running(t *testing.T, pid int) bool {
	t.Helper()
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		state := stat[bytes.LastIndexByte(stat, ')')+2]
		return state != 'Z' && state != 'X'
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return false
	}
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	state := strings.TrimSpace(string(out))
	return state != "" && state[0] != 'Z'
}

func gone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, func() bool { return !running(t, pid) }, func() string { return fmt.Sprintf("process %d runs on", pid) })
}
