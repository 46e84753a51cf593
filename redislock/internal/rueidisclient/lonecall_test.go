package rueidisclient

import (
	"net"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
)

// silentConn returns a connection that has owed an answer for a minute, and its
// server's end.
func silentConn(t *testing.T) (m *boundConn, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Close() })
	a := new(loneCall)
	m = a.add(&boundConn{Conn: conn, loneCall: a, stop: func() bool { return true }})
	if _, err := m.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	m.owesSince.Store(int64(time.Since(epoch) - time.Minute))
	return m, server
}

// TestF106_ArrivedAnswerKeepsConnection checks that a connection on which an
// answer arrived, which this process got no processor to read, is not given up.
func TestF106_ArrivedAnswerKeepsConnection(t *testing.T) {
	m, server := silentConn(t)
	if _, err := server.Write([]byte("+OK")); err != nil {
		t.Fatal(err)
	}
	m.loneCall.closeSilent(time.Second)
	b := make([]byte, 10)
	if n, err := m.Read(b); err != nil || string(b[:n]) != "+OK" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	go func() { // the connection is as good as before
		time.Sleep(5 * client.LastLook)
		_, _ = server.Write([]byte("+PUSH"))
	}()
	if n, err := m.Read(b); err != nil || string(b[:n]) != "+PUSH" {
		t.Errorf("read %q, %v", b[:n], err)
	}
}

// TestF115_SilentConnectionIsClosed checks that a connection without an answer
// is closed while its reader waits.
func TestF115_SilentConnectionIsClosed(t *testing.T) {
	m, server := silentConn(t)
	ended := make(chan error, 1)
	go func() {
		_, err := m.Read(make([]byte, 10))
		ended <- err
	}()
	time.Sleep(client.LastLook) // mostly, the reader waits by now
	m.loneCall.closeSilent(time.Second)
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the read of a silent connection succeeds")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the reader of a silent connection still waits")
	}
	b := make([]byte, 10)
	if n, err := server.Read(b); err != nil || string(b[:n]) != "request" {
		t.Fatalf("the server read %q, %v", b[:n], err)
	}
	if _, err := server.Read(b); err == nil {
		t.Error("the connection is still open")
	}
}
