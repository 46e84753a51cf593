package zklock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// process is a program in another language with locks of its own. A test drives
// it with lines of text: see interop.
type process struct {
	t    *testing.T
	name string
	in   io.WriteCloser
	out  chan string
}

// startCurator compiles and runs interop/curator: Java, with Apache Curator.
func startCurator(t *testing.T, addr string) *process {
	t.Helper()
	java := servers.Java(t)
	classes := servers.ZooKeeperClasses(t) + ":" +
		servers.JavaClasses(t, "libcurator-recipes-java", "guava", "curator-client", "curator-framework", "curator-recipes")
	javac := servers.Find(t, "HOLDFAST_JAVAC", "default-jdk-headless", "javac")
	dir := t.TempDir()
	if out, err := exec.Command(javac, "-cp", classes, "-d", dir, filepath.Join("..", "interop", "curator", "Peer.java")).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return start(t, "curator", exec.Command(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classes+":"+dir, "Peer", addr))
}

// start runs a process until the test's end.
func start(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &process{t: t, name: name, in: in, out: make(chan string, 16)}
	go func() {
		defer close(c.out)
		for queues := bufio.NewScanner(out); queues.Scan(); {
			c.out <- queues.Text()
		}
	}()
	t.Cleanup(func() {
		in.Close()
		for range c.out {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	if got := c.answer(); got != "ready" {
		t.Fatalf("%s says %q", name, got)
	}
	return c
}

func (c *process) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *process) answer() string {
	c.t.Helper()
	select {
	case s, ok := <-c.out:
		if !ok {
			c.t.Fatal(c.name, "has ended")
		}
		return s
	case <-time.After(time.Minute):
		c.t.Fatal(c.name, "says nothing")
	}
	return ""
}

// processLock is a lock of the process: kind is mutex, read or write.
type processLock struct {
	c          *process
	kind, path string
}

func (l *processLock) try(t *testing.T) bool {
	l.c.send("try %s %s", l.kind, l.path)
	return l.c.answer() == "held"
}

func (l *processLock) lock(t *testing.T, done chan<- error) {
	l.c.send("lock %s %s", l.kind, l.path)
	go func() {
		var err error
		if s, ok := <-l.c.out; s != "held" || !ok {
			err = fmt.Errorf("%s says %q", l.c.name, s)
		}
		done <- err
	}()
}

func (l *processLock) unlock(t *testing.T) {
	l.c.send("unlock %s %s", l.kind, l.path)
	if got := l.c.answer(); got != "released" {
		t.Fatalf("%s says %q", l.c.name, got)
	}
}

// countsWith makes the process and a client of Holdfast add to one node's
// number under one lock, in plain steps, n times each.
func countsWith(t *testing.T, p *process, look *zk.Conn, c *holdfast.Client, name string, n int) {
	t.Helper()
	counter := "/" + unique("counter")
	if _, err := look.Create(counter, []byte("0"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	p.send("count %s %s %d", "/"+name, counter, n)
	for range n {
		err := c.Do(t.Context(), name, func(context.Context) error {
			data, _, err := look.Get(counter)
			if err != nil {
				return err
			}
			k := 0
			if _, err := fmt.Sscan(string(data), &k); err != nil {
				return err
			}
			_, err = look.Set(counter, fmt.Append(nil, k+1), -1)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := p.answer(); got != "counted" {
		t.Fatalf("%s says %q", p.name, got)
	}
	data, _, err := look.Get(counter)
	if err != nil || strings.TrimSpace(string(data)) != fmt.Sprint(2*n) {
		t.Errorf("counted to %s, want %d; %v", data, 2*n, err)
	}
}
