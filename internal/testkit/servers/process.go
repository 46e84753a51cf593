// Package servers starts the real servers that tests need: on free loopback
// ports, with their data in a temporary folder, and ends them by their process
// id. The servers die with the test process, whatever ends it.
//
// The package has a general part, [Start] and [Process], and a file for each
// kind of server. A server whose program is not installed skips the test and
// says what to install; with CI in the environment it fails the test instead.
//
// A package whose tests share servers ends its TestMain with [Main].
package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit bounds the time until a server answers. It is long, because it
// only decides when to give up on a slow or busy machine.
const startLimit = 2 * time.Minute

// Spec describes how a server is run.
type Spec struct {
	Name string   // for messages
	Path string   // of the program, see [Find]
	Args []string // without the program's name
	Env  []string // besides the test's own
	Dir  string   // working directory
	Host *Host    // of a Network; nil is the test's machine

	// Ready returns nil as soon as the server serves. It is called again and
	// again, each time with a context of a second, until then or until the
	// server ends. Nil for no wait.
	Ready func(ctx context.Context) error

	// Stop is the signal of [Process.Stop]; 0 is SIGTERM.
	Stop syscall.Signal
}

// Process is a server that was started. Its methods are safe for concurrent
// use.
type Process struct {
	spec Spec
	pid  int
	log  logTail
	done chan struct{} // closed when it has ended
	err  error         // how, after done
}

// Start runs a server and waits until it is ready. If the server does not get
// ready, Start fails the test, with the server's log. The caller ends the
// process.
func Start(t testing.TB, spec Spec) *Process {
	t.Helper()
	p, err := start(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func start(spec Spec) (*Process, error) {
	p := &Process{spec: spec, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	if err := p.ready(); err != nil {
		p.signal(syscall.SIGKILL)
		<-p.done
		return nil, fmt.Errorf("%s does not get ready: %w\n%s", spec.Name, err, p.Log())
	}
	return p, nil
}

// run starts the program and waits for its end, on one thread: Linux sends the
// signal of a parent's death when the thread ends that started the child.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := p.spec.Host.Command(append([]string{p.spec.Path}, p.spec.Args...)...)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = p.spec.Dir
	cmd.Env = append(os.Environ(), p.spec.Env...)
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil
	p.err = cmd.Wait()
	close(p.done)
}

func (p *Process) ready() error {
	if p.spec.Ready == nil {
		return nil
	}
	var err error
	for end := time.Now().Add(startLimit); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = p.spec.Ready(ctx)
		cancel()
		if err == nil {
			// Another server may have answered, on a port that this one wanted.
			select {
			case <-p.done:
				return fmt.Errorf("it ended: %v", p.err)
			case <-time.After(10 * time.Millisecond):
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %v", p.err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return err
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log returns the end of what the server has printed.
func (p *Process) Log() string { return p.log.String() }

// Stop asks the process to end and waits for the end. It kills a process that
// does not end in ten seconds.
func (p *Process) Stop() {
	p.signal(syscall.SIGCONT) // a paused process receives no other signal
	sig := p.spec.Stop
	if sig == 0 {
		sig = syscall.SIGTERM
	}
	p.signal(sig)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// Kill ends the process at once, as a crash would, and waits for the end.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Pause stops the process; it keeps its connections and answers nothing. It
// returns once all its threads have stopped.
func (p *Process) Pause(t testing.TB) {
	t.Helper()
	p.must(t, syscall.SIGSTOP)
	awaitStop(p.pid)
}

// Resume lets a paused process continue.
func (p *Process) Resume(t testing.TB) {
	t.Helper()
	p.must(t, syscall.SIGCONT)
}

func (p *Process) must(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.signal(sig); err != nil {
		t.Fatalf("send %v to %s: %v", sig, p.spec.Name, err)
	}
}

// signal never reaches another process: the id is this one's until done is
// closed.
func (p *Process) signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
		return syscall.Kill(p.pid, sig)
	}
}

// logTail keeps the end of the output that is written to it.
type logTail struct {
	mu  sync.Mutex
	buf []byte
}

const logSize = 16 << 10

// Write implements io.Writer.
func (l *logTail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	if n := len(l.buf) - logSize; n > logSize {
		l.buf = append(l.buf[:0], l.buf[n:]...)
	}
	return len(b), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.buf[max(0, len(l.buf)-logSize):]))
}
