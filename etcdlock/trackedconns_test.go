package etcdlock

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"
)

// trackedPair returns a connection that trackedConns records, and its other end.
func trackedPair(t *testing.T, ws *trackedConns) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near, _, err = trackingCreds{insecure.NewCredentials(), ws}.ClientHandshake(context.Background(), "", raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// TestF115_AnswersThatArrivedAreNoSilence checks that a process that got no
// processor for a while finds the answers that have arrived before it gives a
// connection up.
func TestF115_AnswersThatArrivedAreNoSilence(t *testing.T) {
	t.Parallel()
	ws := newTrackedConns()
	near, far := trackedPair(t, ws)
	say := func(c net.Conn) {
		t.Helper()
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(c net.Conn) error {
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	for range 2 {
		say(near)
		if err := hear(far); err != nil {
			t.Fatal(err)
		}
		say(far) // not read yet
		ws.closeSilent(0)
		if err := hear(near); err != nil {
			t.Fatalf("the answer had arrived: %v", err)
		}
	}
	heard := make(chan error, 1)
	go func() { heard <- hear(near) }()
	say(far)
	if err := <-heard; err != nil {
		t.Fatalf("what comes later: %v", err)
	}

	go func() { heard <- hear(near) }()
	ws.closeSilent(0)
	say(far) // no request is unanswered
	if err := <-heard; err != nil {
		t.Fatalf("a connection on which nothing was asked: %v", err)
	}

	say(near)
	go func() { heard <- hear(near) }()
	ws.closeSilent(time.Hour)
	ws.closeSilent(0)
	if err := <-heard; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent connection: %v", err)
	}
}
