package plainhttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/plainhttp"
)

// TestAddressOfHost checks which address is dialed for the host of a URL.
func TestAddressOfHost(t *testing.T) {
	for host, want := range map[string]string{
		"a": "a:80", "a:": "a:80", "a:7": "a:7", "[::1]": "[::1]:80", "[::1]:": "[::1]:80", "[::1]:7": "[::1]:7", "[fe80::1%25lo]": "[fe80::1%lo]:80",
	} {
		refused := errors.New("refused")
		var got string
		tr := &plainhttp.Transport{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			got = address
			return nil, refused
		}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.RoundTrip(r); !errors.Is(err, refused) || got != want {
			t.Errorf("%s: %s is dialed, want %s; %v", host, got, want, err)
		}
	}
}

// TestRefusedAfterARequestWasSent sends a request that the server reads and does not answer,
// and that cannot be sent again, since nothing listens any more. Its error is not that of a
// connection that could not be opened: the request may have been carried out.
func TestRefusedAfterARequestWasSent(t *testing.T) {
	s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
		s.read(in)
		_, _ = io.WriteString(out, good)
		s.read(in)
		_ = s.l.Close() // before the connection ends
	})
	c := newClient(t)
	if got, err := c.post(s.url(), "x"); err != nil || got != "good" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err := c.post(s.url(), "x")
	if e, ok := errors.AsType[*net.OpError](err); err == nil || ok && e.Op == "dial" {
		t.Errorf("the error says that nothing was sent: %v", err)
	}
	if n := s.requests.Load(); n != 2 {
		t.Errorf("%d requests came, want 2", n)
	}
}

// TestConnectionInUseAtCloseIdle checks that CloseIdleConnections leaves a connection alone that
// carries a request, and that it is closed with the answer's end.
func TestConnectionInUseAtCloseIdle(t *testing.T) {
	answer, ended := make(chan struct{}), make(chan error, 1)
	s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
		s.read(in)
		<-answer
		_, _ = io.WriteString(out, good)
		_ = out.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err := in.Peek(1)
		ended <- err
	})
	c := newClient(t)
	done := make(chan error, 1)
	go func() { _, err := c.post(s.url(), "x"); done <- err }()
	for s.requests.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	c.CloseIdleConnections()
	close(answer)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != io.EOF {
		t.Errorf("the connection is still open: %v", err)
	}
}

// TestReadAfterClose checks that a closed body is not read.
func TestReadAfterClose(t *testing.T) {
	s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
		s.read(in)
		_, _ = io.WriteString(out, good)
		_, _ = in.Peek(1)
	})
	c := newClient(t)
	resp, err := c.Get(s.url())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if n, err := resp.Body.Read(make([]byte, 4)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

// TestForgottenBody checks that the end of the context closes the connection of an answer that
// nobody reads or closes.
func TestForgottenBody(t *testing.T) {
	ended := make(chan error, 1)
	s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
		s.read(in)
		_, _ = io.WriteString(out, good)
		_ = out.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err := in.Peek(1)
		ended <- err
	})
	c := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err, ok := errors.AsType[net.Error](<-ended); ok && err.Timeout() {
		t.Errorf("the connection is still open: %v", err)
	}
	_ = resp.Body.Close()
}

// failing is the body of a request, whose reading fails after a text.
type failing struct {
	io.Reader
	closed int
}

var errFailing = errors.New("the body fails")

func (f *failing) Close() error { f.closed++; return nil }

// TestBodyOfRequestFails checks that a request whose body fails, or has another length than
// the request says, is not sent again, and that its body is closed once.
func TestBodyOfRequestFails(t *testing.T) {
	for what, text := range map[string]io.Reader{
		"error": io.MultiReader(strings.NewReader("x"), errorReader{}), "long": strings.NewReader("xyz"), "short": strings.NewReader("x"),
	} {
		t.Run(what, func(t *testing.T) {
			serve := func(s *script, in *bufio.Reader, out net.Conn) {
				for s.read(in) {
					_, _ = io.WriteString(out, good)
				}
			}
			s := newScript(t, serve, serve, serve)
			c := newClient(t)
			if _, err := c.post(s.url(), "x"); err != nil {
				t.Fatal(err)
			}
			body := &failing{Reader: text}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url(), body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = 2
			again := 0
			r.GetBody = func() (io.ReadCloser, error) { again++; return body, nil }
			r.Header["Idempotency-Key"] = nil
			_, err = c.Transport.RoundTrip(r)
			if err == nil {
				t.Error("no error")
			}
			if again != 0 || body.closed != 1 {
				t.Errorf("sent again %d times, closed %d times", again, body.closed)
			}
			if got, err := c.post(s.url(), "x"); err != nil || got != "good" {
				t.Errorf("the next request: %q, %v", got, err)
			}
		})
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errFailing }
