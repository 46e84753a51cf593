//go:build unix

package cli

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// screen is a terminal on which a process runs.
type screen struct {
	t    *testing.T
	file *os.File
	mu   sync.Mutex
	text strings.Builder
}

// onScreen starts a process on a terminal of its own.
func (p *process) onScreen(rows, columns uint16) *screen {
	p.t.Helper()
	p.cmd.Stdout, p.cmd.Stderr = nil, nil
	master, err := pty.StartWithSize(p.cmd, &pty.Winsize{Rows: rows, Cols: columns})
	if err != nil {
		p.t.Fatal(err)
	}
	defer master.Close()
	// A descriptor of its own that does not block, so that closing it ends a
	// read.
	fd, err := syscall.Dup(int(master.Fd()))
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	s := &screen{t: p.t, file: os.NewFile(uintptr(fd), "terminal")}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := s.file.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.wait()
		s.file.Close()
		<-read
		if p.t.Failed() {
			text := s.shows()
			p.t.Logf("holdfast %q: %v, the terminal showed at last %q", p.cmd.Args[1:], p.cmd.ProcessState, text[max(0, len(text)-1000):])
		}
	})
	return s
}

func (s *screen) shows() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// expect waits until text was shown so many times.
func (s *screen) expect(text string, times int) {
	s.t.Helper()
	eventually(s.t, func() bool { return strings.Count(s.shows(), text) >= times },
		func() string { return fmt.Sprintf("%q was not shown %d times", text, times) })
}

// press types keys.
func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.file.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}
