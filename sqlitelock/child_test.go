package sqlitelock

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// childEnv is the environment variable that turns the test binary into a child.
// Its value names one of children, followed by the child's arguments.
const childEnv = "HOLDFAST_SQLITE_CHILD"

// children are the programs that this binary can run in a process of its own. A
// child writes to standard output what the test waits for, and ends when its
// standard input does.
var children = map[string]func(args []string) error{
	"makes": childMakes,
	"open":  childOpen,
	"torn":  childTorn,
	"turns": childTurns,
	"watch": childWatch,
	"write": childWrite,
}

func runChild() {
	spec := os.Getenv(childEnv)
	if spec == "" {
		return
	}
	var args []string
	err := json.Unmarshal([]byte(spec), &args)
	if err == nil {
		err = children[args[0]](args[1:])
	}
	if err != nil {
		fmt.Println("error: " + err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// child is a process that runs one of children.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	once  sync.Once
}

// spawn starts a child. The end of the test kills it.
func spawn(t *testing.T, change func(*exec.Cmd), args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(self), lines: make(chan string, 1<<16)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	c.cmd.Stderr = os.Stderr
	if change != nil {
		change(c.cmd)
	}
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
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(c.kill)
	return c
}

// line returns the child's next line of output.
func (c *child) line() string {
	c.t.Helper()
	select {
	case s, ok := <-c.lines:
		if ok {
			return s
		}
		c.t.Fatal("the child has ended")
	case <-time.After(time.Minute):
		c.t.Fatal("the child says nothing")
	}
	return ""
}

func (c *child) expect(want string) {
	c.t.Helper()
	if s := c.line(); s != want {
		c.t.Fatalf("the child says %q, want %q", s, want)
	}
}

func (c *child) say(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, s+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends the child at once.
func (c *child) kill() {
	c.once.Do(func() {
		_ = c.cmd.Process.Kill()
		_ = c.in.Close()
		_ = c.cmd.Wait()
	})
}

// end lets the child end by itself.
func (c *child) end() {
	c.t.Helper()
	_ = c.in.Close()
	for s := range c.lines {
		if strings.HasPrefix(s, "error: ") {
			c.t.Error(s)
		}
	}
	c.once.Do(func() {
		if err := c.cmd.Wait(); err != nil {
			c.t.Error(err)
		}
	})
}

// childOpen opens the file on a signal from the test, and takes and leaves a
// ticket.
func childOpen(args []string) error {
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	d, err := Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	t := &driver.Ticket{ID: fmt.Sprintf("p:%d", os.Getpid()), Name: "n", Units: 1, Limit: 1, TTL: time.Minute}
	p, err := d.Join(context.Background(), t, true)
	if err != nil {
		return err
	}
	if _, err := d.Leave(context.Background(), []driver.Ref{{Ticket: t}}); err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	fmt.Println(p.State)
	return nil
}
