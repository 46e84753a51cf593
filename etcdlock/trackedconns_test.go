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

// TestF115_LateInThePauseClosesConnections checks that a silent connection is closed
// where a keep-alive becomes too late in the pause between two streams: the next
// stream may wait for its answer until the lease is over.
func TestF115_LateInThePauseClosesConnections(t *testing.T) {
	t.Parallel()
	ws := newTrackedConns()
	ws.begun = ws.begun.Add(-time.Minute)
	near, _ := trackedPair(t, ws)
	near.(*trackedConn).owesSince.Store(1)
	c := &cluster{conns: ws}
	s := (&sessions{cluster: c}).newSession(2*time.Second, 1, 3*time.Second, false)
	h := &keepAlive{cluster: c, want: []*session{s}}
	if s.since = time.Now().Add(time.Minute); h.closeOverdue() {
		t.Error("closed, and no keep-alive is late")
	}
	if s.since = time.Now().Add(-s.silenceLimit()); !h.closeOverdue() {
		t.Error("a keep-alive is late, and the connection stays")
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read of the silent connection: %v", err)
	}
}
