package handover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
)

// Scene describes what is to be recorded.
type Scene struct {
	Folder string // of the command holdfast
	URL    string // of the store
	Store  string // its name and version, for the record
	TTL    time.Duration
	Pause  time.Duration    // before the second command is typed, and before the kill
	Work   [2]time.Duration // how long the command of each terminal works
}

// backup is the command that the terminals run under the lock.
const backup = `#!/bin/sh
echo "backup: started, token $HOLDFAST_TOKEN"
sleep "$WORK"
echo "backup: done"
`

// Play runs the scene, in real time. ctx bounds it.
func (s Scene) Play(ctx context.Context) (*Recording, error) {
	work, err := os.MkdirTemp("", "holdfast-handover-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "backup"), []byte(backup), 0o755); err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, filepath.Join(s.Folder, "holdfast"), "version").Output()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	r := &Recording{
		Recorded: begun.UTC().Format(time.DateOnly), Version: strings.TrimSpace(string(version)),
		Store: s.Store, TTL: Duration(s.TTL), Terminals: make([]Terminal, 2),
	}
	typed := fmt.Sprintf("holdfast run --ttl %v nightly -- ./backup", s.TTL)
	start := func(i int) (*session, error) {
		// Like a terminal, the shell outlives the command: until the scene is over.
		cmd := exec.CommandContext(ctx, "sh", "-c", typed+"; status=$?; until [ -e over ]; do sleep 0.05; done; exit $status")
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "PATH="+s.Folder+":"+os.Getenv("PATH"), "HOLDFAST_STORE="+s.URL,
			fmt.Sprintf("WORK=%g", s.Work[i].Seconds()))
		r.Terminals[i].Typed = typed
		return startSession(cmd, &r.Terminals[i], begun)
	}
	first, err := start(0)
	if err != nil {
		return nil, err
	}
	second, err := s.scene(ctx, r, begun, first, start)
	err = errors.Join(err, os.WriteFile(filepath.Join(work, "over"), nil, 0o644))
	for _, t := range []*session{first, second} {
		if t != nil {
			if err != nil {
				_ = t.cmd.Process.Kill()
			}
			t.wait()
		}
	}
	if err == nil {
		_, err = r.facts()
	}
	return r, err
}

// scene waits for the first terminal's hold, starts the second, kills the holder, and
// waits until both terminals have shown all.
func (s Scene) scene(ctx context.Context, r *Recording, begun time.Time, first *session, start func(int) (*session, error)) (*session, error) {
	if err := first.await(ctx, started); err != nil {
		return nil, err
	}
	time.Sleep(s.Pause)
	second, err := start(1)
	if err != nil {
		return nil, err
	}
	if err := second.await(ctx, waiting); err != nil {
		return second, err
	}
	time.Sleep(s.Pause)
	r.Kill = "kill -9 " + waiting.FindStringSubmatch(second.find(waiting))[2]
	r.Killed = Duration(time.Since(begun))
	if err := exec.CommandContext(ctx, "sh", "-c", r.Kill).Run(); err != nil {
		return second, err
	}
	return second, errors.Join(first.await(ctx, killed), first.await(ctx, guarded), second.await(ctx, finished))
}

// session is a command on a terminal of its own.
type session struct {
	cmd   *exec.Cmd
	file  *os.File
	begun time.Time
	read  sync.WaitGroup
	news  chan struct{} // has an element when the terminal has shown something

	mu       sync.Mutex
	terminal *Terminal
}

// columns is the width of the terminals: every line of the scene fits.
const columns = 100

func startSession(cmd *exec.Cmd, t *Terminal, begun time.Time) (*session, error) {
	s := &session{cmd: cmd, begun: begun, terminal: t, news: make(chan struct{}, 1)}
	t.Began = Duration(time.Since(begun))
	var err error
	if s.file, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		return nil, err
	}
	s.read.Go(s.record)
	return s, nil
}

// record records what the terminal shows until nobody has it open any more.
func (s *session) record() {
	b := make([]byte, 4096)
	for {
		n, err := s.file.Read(b)
		at := Duration(time.Since(s.begun))
		s.mu.Lock()
		if n > 0 {
			s.terminal.Output = append(s.terminal.Output, Chunk{At: at, Text: string(b[:n])})
		}
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// find returns the line that fits, or nothing.
func (s *session) find(is *regexp.Regexp) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.terminal.Screen() {
		if is.MatchString(l.Text) {
			return l.Text
		}
	}
	return ""
}

// await waits until the terminal shows a line that fits.
func (s *session) await(ctx context.Context, is *regexp.Regexp) error {
	for s.find(is) == "" {
		select {
		case <-s.news:
		case <-ctx.Done():
			return fmt.Errorf("no terminal shows %v: %w", is, context.Cause(ctx))
		}
	}
	return nil
}

// wait waits for the end of the shell, and of all that has its terminal open.
func (s *session) wait() {
	err := s.cmd.Wait()
	s.read.Wait()
	_ = s.file.Close() // has been read to its end
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		s.terminal.Status = exit.ExitCode()
	}
}
