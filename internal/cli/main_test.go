//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// asHoldfast in the environment makes the test binary the command. Clients of
// torture and workers of bench have no environment, but arguments that no test has.
const asHoldfast = "HOLDFAST_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asHoldfast) != "" || len(os.Args) == 2 && (os.Args[1] == clientVerb || os.Args[1] == workerVerb) {
		syscall.Exit(Main()) // at once: os.Exit lets the race detector sleep
	}
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() == "" { // which takes it for how many processes to run
		// The tests wait for other processes most of the time.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	for _, name := range []string{storeVar, heldVar, "HOLDFAST_NAME", "HOLDFAST_TOKEN"} {
		os.Unsetenv(name)
	}
	servers.Main(m)
}

// result is the status and the output of a verb that ran in this process.
type result struct {
	status   int
	out, err string
}

// holdfastHere runs a verb in this process.
func holdfastHere(args ...string) result { return holdfastAsked("", args...) }

// holdfastAsked is holdfastHere with a standard input.
func holdfastAsked(in string, args ...string) result {
	var out, errs bytes.Buffer
	a := newApp()
	a.root.SetIn(strings.NewReader(in))
	a.root.SetOut(&out)
	a.root.SetErr(&errs)
	status := a.execute(args)
	a.closing.Wait()
	return result{status, out.String(), errs.String()}
}

// want fails unless the status is as wanted and the texts contain what they
// should.
func (r result) want(t *testing.T, status int, out, err string) result {
	t.Helper()
	if r.status != status || !strings.Contains(r.out, out) || !strings.Contains(r.err, err) {
		t.Errorf("status %d, output %q, errors %q; want %d, %q and %q", r.status, r.out, r.err, status, out, err)
	}
	return r
}

// objects decodes JSON, one object a line.
func objects(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, o)
	}
	return all
}

// memory returns the URL of a store in this process, and a client of it.
func memory(t *testing.T, opts ...holdfast.ClientOption) (string, *holdfast.Client) {
	t.Helper()
	url := "memory:" + t.Name()
	url = strings.ReplaceAll(url, "/", "-")
	return url, open(t, url, opts...)
}

func open(t *testing.T, url string, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	c, err := anylock.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func lock(t *testing.T, m interface {
	Lock(context.Context) (*holdfast.Hold, error)
}) *holdfast.Hold {
	t.Helper()
	h, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Unlock() })
	return h
}

// waitBehind lets somebody stand in line for a mutex until the test ends; c must
// not be the client that holds it.
func waitBehind(t *testing.T, c *holdfast.Client, name string, waiters int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	t.Cleanup(done.Wait)
	t.Cleanup(cancel)
	done.Go(func() {
		if h, err := c.Mutex(name, holdfast.WithNote("patient")).Lock(ctx); err == nil {
			_ = h.Unlock()
		}
	})
	eventually(t, func() bool {
		l, err := c.Inspect(t.Context(), name)
		return err == nil && len(l.Waiters) == waiters
	}, func() string { return "nobody waits" })
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

// where is a store that processes share.
type where struct {
	name string
	url  func(t *testing.T) string
}

// everywhere runs a test on every kind of store that processes share.
func everywhere(t *testing.T, f func(t *testing.T, url string)) {
	for _, w := range []where{
		{"sqlite", sqlite},
		{"redis", func(t *testing.T) string { return servers.SharedRedis(t).URL("prefix=" + t.Name() + ":") }},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f(t, w.url(t))
		})
	}
}

func sqlite(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "locks.db") }

// process is a holdfast in a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	dir   string
	limit time.Duration // of its run
	once  sync.Once
}

// command prepares a process whose output goes to files, in a folder of its own
// in which it also runs.
func command(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), limit: endLimit, cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Dir = p.dir
	p.cmd.Env = append(os.Environ(), asHoldfast+"=1", "XDG_STATE_HOME="+filepath.Join(p.dir, "state"))
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(p.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	p.cmd.Stdout, p.cmd.Stderr = open("out"), open("err")
	return p
}

// start starts holdfast, which is ended with the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return command(t, args...).start()
}

func (p *process) start() *process {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.wait()
		if p.t.Failed() {
			p.t.Logf("holdfast %q: %v, output %q, errors %q", p.cmd.Args[1:], p.cmd.ProcessState, p.read("out"), p.read("err"))
		}
	})
	return p
}

// run starts holdfast and waits for its end.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return start(t, args...).end()
}

// endLimit bounds the end of a process, on a machine that does much
// else.
const endLimit = 2 * time.Minute

// wait waits for the process. One that does not end is made to show its
// goroutines, and killed.
func (p *process) wait() {
	p.once.Do(func() {
		abort := time.AfterFunc(p.limit, func() {
			p.t.Errorf("holdfast %q had not ended after %v", p.cmd.Args[1:], p.limit)
			_ = p.cmd.Process.Signal(syscall.SIGABRT)
		})
		kill := time.AfterFunc(p.limit+5*time.Second, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait()
		abort.Stop()
		kill.Stop()
	})
}

// end waits for the process.
func (p *process) end() result {
	p.t.Helper()
	p.wait()
	return result{p.cmd.ProcessState.ExitCode(), p.read("out"), p.read("err")}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) path(name string) string { return filepath.Join(p.dir, name) }

// read returns what a file in the process's folder contains, nothing if it is
// not there.
func (p *process) read(name string) string {
	b, err := os.ReadFile(p.path(name))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return string(b)
}

// says waits until a file of the process contains a text.
func (p *process) says(name, text string) *process {
	p.t.Helper()
	eventually(p.t, func() bool { return strings.Contains(p.read(name), text) },
		func() string { return fmt.Sprintf("%s has no %q but %q", name, text, p.read(name)) })
	return p
}

// touch makes an empty file in the process's folder.
func (p *process) touch(name string) {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// untilStop is a command that says "in", and ends when there is a file stop.
const untilStop = `echo in; while [ ! -e stop ]; do sleep 0.02; done`
