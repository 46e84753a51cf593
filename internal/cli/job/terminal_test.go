//go:build unix

package job

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// session is an interactive shell on a terminal of its own, and a person who
// types.
type session struct {
	t    *testing.T
	f    files
	pty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	text strings.Builder
	seen int // the bytes of text that were read
}

func newSession(t *testing.T) *session {
	t.Helper()
	t.Parallel()
	s := &session{t: t, f: newFiles(t)}
	s.cmd = exec.Command("/bin/sh", "-i")
	s.cmd.Dir = s.f.dir
	s.cmd.Env = append(os.Environ(), "PS1=prompt$ ", "ENV=", "HISTFILE=", "TERM=dumb", "RUN="+os.Args[0]+" runner 1h 1m")
	master, err := pty.Start(s.cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	// A descriptor of its own that does not block, so that closing it ends a
	// read, and hangs up.
	fd, err := syscall.Dup(int(master.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	s.pty = os.NewFile(uintptr(fd), "terminal")
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := s.pty.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		s.pty.Close() // hangs up: the shell and its jobs end
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		<-read
		if t.Failed() {
			t.Logf("the terminal showed:\n%s", s.text.String())
		}
	})
	s.expect("prompt$ ")
	return s
}

// write types text; "\n" is the return key.
func (s *session) write(text string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits until text is shown, after what was expected before.
func (s *session) expect(text string) {
	s.t.Helper()
	eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := strings.Index(s.text.String()[s.seen:], text)
		if i >= 0 {
			s.seen += i + len(text)
		}
		return i >= 0
	}, func() string { return fmt.Sprintf("the terminal does not show %q", text) })
}

// script writes a shell script and returns its name. That keeps what it prints
// apart from the echo of what was typed.
func (s *session) script(text string) string {
	s.t.Helper()
	name := fmt.Sprintf("./%d.sh", len(text))
	if err := os.WriteFile(s.f.path(name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		s.t.Fatal(err)
	}
	return name
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// TestCommandReadsTheTerminal: the command can read from the keyboard, and the shell
// afterwards too.
func TestCommandReadsTheTerminal(t *testing.T) {
	s := newSession(t)
	s.write("$RUN " + s.script("echo rea''dy; read x; echo \"<$x>\"") + "\n")
	s.expect("ready")
	s.write("hello\n")
	s.expect("<hello>")
	s.expect("[result 0")
	s.write("echo again''st\n")
	s.expect("against")
}

// TestCtrlCEndsCommandAndScript: the command gets the keyboard's signals, and a script that runs
// it ends with it, as it would without.
func TestCtrlCEndsCommandAndScript(t *testing.T) {
	s := newSession(t)
	s.write("$RUN " + s.script("trap 'echo caug''ht; exit 5' INT; echo rea''dy; while :; do sleep 0.05; done") + "\n")
	s.expect("ready")
	s.write(ctrlC)
	s.expect("caught")
	s.expect("[result 5")
	s.expect("prompt$ ")
	s.write("$RUN sleep 1000\n")
	s.expect("[started ]")
	s.write(ctrlC)
	s.expect(`[result 130 "" true`)
	s.expect("prompt$ ")
}

// TestCtrlZLendsTheTerminal: the shell has the terminal while the job is stopped, and the
// command when it is continued.
func TestCtrlZLendsTheTerminal(t *testing.T) {
	s := newSession(t)
	s.write("$RUN " + s.script("echo rea''dy; read x; echo \"<$x>\"; read y; echo \"<$y>\"") + "\n")
	s.expect("ready")
	s.write("one\n")
	s.expect("<one>")
	s.write(ctrlZ)
	s.expect("[suspended ]")
	s.expect("prompt$ ")
	s.write("echo shel''l\n")
	s.expect("shell")
	s.write("fg\n")
	s.write("two\n")
	s.expect("<two>")
	s.expect("[result 0")
	s.expect("prompt$ ")
}

// TestPipelineKeepsTheTerminal: the other programs of a pipeline keep the terminal, until the
// command reads from it.
func TestPipelineKeepsTheTerminal(t *testing.T) {
	s := newSession(t)
	s.write("$RUN " + s.script("echo rea''dy; read x </dev/tty; echo \"<$x>\"") + " | cat\n")
	s.expect("ready")
	s.write("hello\n")
	s.expect("<hello>")
	s.expect("prompt$ ")
	s.write("$RUN " + s.script("echo >started; sleep 1000") + " | " + s.script("echo wai''ting; read x </dev/tty; echo \"<$x>\"; cat") + "\n")
	s.expect("waiting")
	s.write("mine\n")
	s.expect("<mine>")
	s.f.wait("started", "\n")
	s.write(ctrlC)
	s.expect("[result 130")
	s.expect("prompt$ ")
}

// TestBackgroundReaderStops: a command that wants the terminal while its job is in the
// background stops, as the shell's own jobs do, and reads when it is in front.
func TestBackgroundReaderStops(t *testing.T) {
	s := newSession(t)
	s.write("$RUN " + s.script("echo rea''dy; read x; echo \"<$x>\"") + " &\n")
	s.expect("ready")
	s.expect("[suspended ]")
	s.write("echo shel''l\n")
	s.expect("shell")
	s.write("fg\n")
	s.write("hello\n")
	s.expect("<hello>")
	s.expect("[result 0")
	s.write("echo again''st\n")
	s.expect("against")
}

// TestTerminalModesAreRestored: a command that dies with the terminal in a mode of its own
// leaves it as it was.
func TestTerminalModesAreRestored(t *testing.T) {
	s := newSession(t)
	s.write("$RUN " + s.script("stty -echo -icanon; kill -KILL $$") + "\n")
	s.expect("[result 137")
	s.expect("prompt$ ")
	s.write("stty -a | grep -w -o -e -echo -e -icanon; echo do''ne\n")
	s.expect("done")
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.text.String()
	if tail := text[strings.LastIndex(text, "[result"):]; strings.Contains(tail, "\n-echo") || strings.Contains(tail, "\n-icanon") {
		t.Error("the terminal's modes were not restored")
	}
}

// TestHangUpEndsTheCommand: when the terminal goes away, so does the command.
func TestHangUpEndsTheCommand(t *testing.T) {
	s := newSession(t)
	s.write("$RUN " + s.script("echo $$ >pid; echo rea''dy; read x; sleep 1000") + "\n")
	s.expect("ready")
	pid := s.f.pid("pid")
	s.pty.Close()
	gone(t, pid)
}
