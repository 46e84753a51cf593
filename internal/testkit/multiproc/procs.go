// Package multiproc tests a store with real processes: the test binary runs itself
// again as clients, which are counted against, paused and killed.
//
//	func TestMain(m *testing.M) {
//		multiproc.Child(func(target string) (driver.Driver, error) { return open(target) })
//		goleak.VerifyTestMain(m)
//	}
//
//	func TestProcesses(t *testing.T) {
//		multiproc.Run(t, multiproc.Store{Target: url, TTL: 2 * time.Second})
//	}
package multiproc

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Store describes a store, how to reach it and how to judge it.
type Store struct {
	Target string // the argument of Child's function: a URL, a path
	// Fresh makes a target for each test, in place of Target: for a store that
	// a process stopped in one test keeps from all clients of another.
	Fresh func(t *testing.T) string
	TTL   time.Duration // of the locks, at least Traits.MinTTL
	Slack time.Duration // added to the promised times; zero means a second
}

// environment marks a process as a client, and names its target.
const environment = "HOLDFAST_TEST_CHILD"

// Child turns this process into a client if Run has started it, and does not
// return then. It stands first in TestMain.
func Child(open func(target string) (driver.Driver, error)) {
	target, ok := os.LookupEnv(environment)
	if !ok {
		return
	}
	if err := serve(target, open, os.Stdin, os.Stdout); err != nil {
		_, _ = io.WriteString(os.Stderr, "client: "+err.Error()+"\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// command is a command to a client, one JSON object a line.
type command struct {
	Op    string        // "lock", "unlock", "count"
	Name  string        // of the lock
	TTL   time.Duration // its lease
	File  string        // of "count"
	Times int           // of "count": by each goroutine
}

// event is a report of a client.
type event struct {
	What  string // "asked", "held", "lost", "unlocked", "counted", "failed"
	Token uint64
	Error string
	At    time.Duration // CLOCK_BOOTTIME, one clock for all processes
}

// client is a process, seen from the test.
type client struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser

	mu     sync.Mutex
	events []event
	grew   chan struct{} // closed and replaced with each event
	done   chan struct{}
}

func (s Store) start(t *testing.T) *client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, cmd: exec.Command(self), grew: make(chan struct{}), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), environment+"="+s.Target)
	c.cmd.Stderr = os.Stderr
	dieWithParent(c.cmd)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read(out)
	t.Cleanup(c.end)
	return c
}

func (c *client) read(out io.Reader) {
	defer close(c.done)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the race detector's or the runtime's
		}
		c.mu.Lock()
		c.events = append(c.events, e)
		close(c.grew)
		c.grew = make(chan struct{})
		c.mu.Unlock()
	}
}

// end lets the process finish by itself; one that was killed or stopped is
// killed.
func (c *client) end() {
	_ = c.in.Close()
	select {
	case <-c.done:
	case <-time.After(20 * time.Second):
		_ = c.cmd.Process.Kill()
		c.t.Error("a client did not end when its input did")
	}
	_ = c.cmd.Wait()
}

func (c *client) send(cmd command) {
	c.t.Helper()
	b, err := json.Marshal(cmd)
	if err == nil {
		_, err = c.in.Write(append(b, '\n'))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// signal sends a signal to the process.
func (c *client) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// stop stops the process, and returns when it has: until one of its threads
// has taken the signal, which on a busy machine lasts, the others go on.
func (c *client) stop() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var s syscall.WaitStatus
		pid, err := syscall.Wait4(c.cmd.Process.Pid, &s, syscall.WUNTRACED|syscall.WNOHANG, nil)
		switch {
		case pid > 0 && s.Stopped():
			return
		case err != nil && err != syscall.EINTR || pid > 0 || time.Now().After(end):
			c.t.Fatalf("the process did not stop: %v, status %#x", err, s)
		}
	}
}

// all returns the events of a kind so far.
func (c *client) all(what string) (es []event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.What == what {
			es = append(es, e)
		}
	}
	return es
}

// wait returns the n-th event of a kind, counted from 1, as soon as it is
// there. It is given a minute: what takes too long is judged by its times.
func (c *client) wait(what string, n int) event {
	c.t.Helper()
	limit := time.After(time.Minute)
	for {
		c.mu.Lock()
		grew := c.grew
		c.mu.Unlock()
		if es := c.all(what); len(es) >= n {
			return es[n-1]
		}
		select {
		case <-grew:
		case <-c.done:
			if es := c.all(what); len(es) >= n {
				return es[n-1]
			}
			c.t.Fatalf("the client ended before %q; failures: %v", what, c.all("failed"))
		case <-limit:
			c.t.Fatalf("waited a minute for %q; failures: %v", what, c.all("failed"))
		}
	}
}
