package zklock

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestF115_AnswersThatArrivedAreNoSilence checks that a process that got no
// processor for a while finds its answers before it gives a connection up, and
// that a process that asked nothing waits for no answer.
func TestF115_AnswersThatArrivedAreNoSilence(t *testing.T) {
	t.Parallel()
	const quiet = 150 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tap := NewTap(nil)
	near, err := tap.Dial("tcp", l.Addr().String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	tap.setSilenceLimit(func() time.Duration { return quiet })
	hear := func(c net.Conn, n int) error {
		_, err := io.ReadFull(c, make([]byte, n))
		return err
	}
	say := func(c net.Conn, n int) {
		t.Helper()
		answer := make([]byte, n)
		if n == len(tapped{}.first) {
			answer[3] = byte(36)
		}
		if _, err := c.Write(answer); err != nil {
			t.Fatal(err)
		}
	}
	say(near, 1)
	say(far, len(tapped{}.first))
	if err := hear(near, len(tapped{}.first)); err != nil {
		t.Fatalf("handshake: %v", err)
	}
	until := func() {
		t.Helper()
		if err := near.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}

	until()
	heard := make(chan error, 1)
	go func() { heard <- hear(near, 1) }()
	time.Sleep(3 * quiet)
	say(far, 1) // nothing was asked
	if err := <-heard; err != nil {
		t.Fatalf("a connection on which nothing was asked: %v", err)
	}

	until()
	say(near, 1)
	say(far, 1)
	time.Sleep(3 * quiet) // nobody reads the answer
	if err := hear(near, 1); err != nil {
		t.Fatalf("the answer had arrived: %v", err)
	}

	until()
	say(near, 1)
	start := time.Now()
	if err := hear(near, 1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent connection: %v", err)
	}
	if took := time.Since(start); took < quiet {
		t.Errorf("it was given up after %v", took)
	}
}
