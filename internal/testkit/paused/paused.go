//go:build unix

// Package paused really stops a holder. The test binary runs itself again as a
// process that takes a lock, checks it for the last time, and is then stopped
// by SIGSTOP. When its lease has ended and the test has taken the lock and has
// written, the process is woken, and makes its late write.
package paused

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/lockclient"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/memlock"
)

const (
	ttl   = time.Second
	stale = "refused: "
)

// The environment of the process: its store, the lock's name, and the target of
// the write.
const (
	envStore  = "HOLDFAST_PAUSED_STORE"
	envName   = "HOLDFAST_PAUSED_NAME"
	envTarget = "HOLDFAST_PAUSED_TARGET"
)

// Write is the write of a holder, to a target that the test names. It returns a
// message for the test.
type Write func(ctx context.Context, target string, t fence.Token) (said string, err error)

// Child turns this process into the holder if Start has started it; then it
// does not return. Call it first in TestMain.
func Child(write Write) {
	store, ok := os.LookupEnv(envStore)
	if !ok {
		return
	}
	if err := hold(context.Background(), store, write); err != nil {
		fmt.Fprintln(os.Stderr, "paused:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func open(ctx context.Context, store string) (*holdfast.Client, error) {
	d, err := lockclient.Open(ctx, store)
	if err != nil {
		return nil, err
	}
	return holdfast.New(d, holdfast.WithTTL(ttl))
}

func hold(ctx context.Context, store string, write Write) error {
	locks, err := open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()
	h, err := locks.Mutex(os.Getenv(envName)).Lock(ctx)
	if err != nil {
		return err
	}
	defer h.Unlock()
	if err := h.Err(); err != nil { // the last check
		return err
	}
	fmt.Println(h.Token())
	if _, err := fmt.Scanln(); err != nil && err.Error() != "unexpected newline" { // the process is stopped here
		return err
	}
	said, err := write(ctx, os.Getenv(envTarget), fence.Token{Value: h.Token(), Owner: "paused"})
	if errors.Is(err, fence.ErrStale) {
		said, err = stale+err.Error(), nil
	}
	if err == nil {
		fmt.Println(said)
	}
	return err
}

// Holder is a stopped process.
type Holder struct {
	Token fence.Token // of its hold; its write will carry it
	// Next is the token of the hold with which the test has taken over.
	Next fence.Token

	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start runs the holder, stops it, waits for its lease to end, and takes its
// lock over until the test's end.
func Start(t testing.TB, target string) *Holder {
	t.Helper()
	store, name := serve(t), "paused/"+t.Name()
	h := &Holder{t: t}
	h.start(store, name, target)
	var value uint64
	if _, err := fmt.Fscanln(h.out, &value); err != nil {
		t.Fatalf("the holder did not say that it holds: %v", err)
	}
	h.Token = fence.Token{Value: value, Owner: "paused"}
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	locks, err := open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next, err := locks.Mutex(name).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.Next = fence.Token{Value: next.Token(), Owner: "next"}
	if h.Next.Value <= h.Token.Value {
		t.Fatalf("token %v was given out after %v", h.Next, h.Token)
	}
	return h
}

// serve runs a lock server over a store in memory until the test's end, and returns its
// address.
func serve(t testing.TB) string {
	t.Helper()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	s, err := lockserver.New(locks, lockserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		_ = s.Drain(context.Background())
		web.Close()
		locks.Close()
	})
	return "holdfast://" + web.Listener.Addr().String()
}

func (h *Holder) start(store, name, target string) {
	t := h.t
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h.cmd = exec.Command(self)
	h.cmd.Env = append(os.Environ(), envStore+"="+store, envName+"="+name, envTarget+"="+target)
	h.cmd.Stderr = os.Stderr
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.in.Close()
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	})
}

// Wake lets the process go on and write, and returns its message. refused means
// that the write failed with fence.ErrStale.
func (h *Holder) Wake() (said string, refused bool) {
	h.t.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		h.t.Fatal(err)
	}
	if _, err := io.WriteString(h.in, "\n"); err != nil {
		h.t.Fatal(err)
	}
	said, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("the holder did not write: %v", err)
	}
	return strings.CutPrefix(strings.TrimSpace(said), stale)
}
