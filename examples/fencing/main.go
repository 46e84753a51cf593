//go:build unix

// Command fencing pauses a holder past the end of its lease, between its last look at
// the lock and its write. No lock can keep it from writing when it wakes up. The resource
// can, if it remembers the highest token it has seen and refuses lower ones.
//
//	go run ./examples/fencing
//	go run ./examples/fencing -store redis://localhost:6379
//
// Two processes want the lock. This one is also the resource that both write to, with and
// without the check. The store has to be one that processes share. The default is a SQLite
// file of this program alone, since a process that is paused while it writes to such a
// file keeps all others from it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const (
	name = "examples/fencing"
	ttl  = time.Second
)

// asSleeper in the environment makes this program the holder that is paused.
const asSleeper = "HOLDFAST_EXAMPLE_SLEEPER"

func main() {
	store := flag.String("store", "", "URL of the store (default a file)")
	flag.Parse()
	var err error
	if os.Getenv(asSleeper) != "" {
		err = sleeper(context.Background(), *store)
	} else {
		err = run(context.Background(), os.Stdout, *store)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errStale is the answer to a write with an old token.
var errStale = errors.New("refused: a later holder has written")

// register is a resource that many write to. With check it is safe.
type register struct {
	check bool
	token uint64 // the highest seen
	value string
}

func (r *register) write(token uint64, value string) error {
	if r.check && token < r.token {
		return errStale
	}
	r.token, r.value = max(r.token, token), value
	return nil
}

// sleeper is the process that will be paused: it takes the lock, looks at it for
// the last time, and then writes, which is to send the token to the other
// process. The pause comes in between.
func sleeper(ctx context.Context, store string) error {
	locks, err := anylock.Open(ctx, store, holdfast.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer locks.Close()
	hold, err := locks.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	// On SQLite, a process that is stopped in the middle of a transaction stops all others.
	time.Sleep(ttl / 20)
	if hold.Err() != nil {
		return hold.Err()
	}
	fmt.Println(hold.Token())                // "I hold, and am about to write"
	_, _ = fmt.Scanln()                      // here it is paused
	fmt.Println(hold.Token(), "old", "data") // the write
	return nil
}

func run(ctx context.Context, w io.Writer, store string) error {
	if store == "" {
		dir, err := os.MkdirTemp("", "holdfast-fencing-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		store = "sqlite:" + filepath.Join(dir, "locks.db")
	}
	locks, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()

	p, err := startSleeper(ctx, store)
	if err != nil {
		return err
	}
	defer p.end()
	var old uint64
	if _, err := fmt.Fscan(p.out, &old); err != nil {
		return fmt.Errorf("the first process did not say that it holds: %w", err)
	}
	fmt.Fprintf(w, "the first process holds with token %d, and is about to write\n", old)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	fmt.Fprintf(w, "it is paused, for longer than its lease of %v\n", ttl)

	hold, err := locks.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock()
	naive, fenced := &register{}, &register{check: true}
	if err := errors.Join(naive.write(hold.Token(), "new data"), fenced.write(hold.Token(), "new data")); err != nil {
		return err
	}
	fmt.Fprintf(w, "the second process holds with token %d, and has written new data\n", hold.Token())

	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	fmt.Fprintln(p.in) // it goes on where it was
	var late uint64
	var word1, word2 string
	if _, err := fmt.Fscan(p.out, &late, &word1, &word2); err != nil {
		return fmt.Errorf("the first process did not write: %w", err)
	}
	fmt.Fprintln(w, "the first process wakes up and writes, late")
	value := word1 + " " + word2
	if err := naive.write(late, value); err != nil {
		return err
	}
	fmt.Fprintf(w, "without the check there is now: %s\n", naive.value)
	if err := fenced.write(late, value); !errors.Is(err, errStale) {
		return fmt.Errorf("the late write should have been refused, and got %v", err)
	}
	fmt.Fprintf(w, "with the check the write was %v; there is still: %s\n", errStale, fenced.value)
	return nil
}

// process is a running sleeper.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startSleeper(ctx context.Context, store string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-store", store)
	cmd.Env = append(os.Environ(), asSleeper+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

func (p *process) end() {
	p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
