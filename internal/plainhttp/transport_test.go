package plainhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/plainhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a client of a Transport, and counts the connections that it opens.
type client struct {
	http.Client
	t      *testing.T
	opened atomic.Int64
}

func newClient(t *testing.T, set ...func(*plainhttp.Transport)) *client {
	c := &client{t: t}
	tr := &plainhttp.Transport{MaxIdle: 4, IdleTimeout: time.Minute, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c.opened.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	for _, f := range set {
		f(tr)
	}
	c.Transport = tr
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// post sends a text, which the server may be asked for again.
func (c *client) post(url, text string) (string, error) {
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header["Idempotency-Key"] = nil
	return c.do(r)
}

func (c *client) do(r *http.Request) (string, error) {
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func (c *client) wantOpened(want int64) {
	c.t.Helper()
	if got := c.opened.Load(); got != want {
		c.t.Errorf("%d connections were opened, want %d", got, want)
	}
}

// TestConnectionsAreKept checks that requests after each other share a connection, that
// those at a time do not, and that answers of all lengths are read to their end.
func TestConnectionsAreKept(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/long":
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20)) // in chunks
		default:
			_, _ = io.Copy(w, r.Body)
		}
	}))
	defer server.Close()
	c := newClient(t)
	for i := range 100 {
		text := fmt.Sprint("text ", i)
		if got, err := c.post(server.URL, text); err != nil || got != text {
			t.Fatalf("%q, %v; want %q", got, err, text)
		}
	}
	for path, want := range map[string]int{"/empty": 0, "/long": 1 << 20} {
		if got, err := c.post(server.URL+path, ""); err != nil || len(got) != want {
			t.Fatalf("%s: %d bytes, %v; want %d", path, len(got), err, want)
		}
	}
	c.wantOpened(1)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				text := fmt.Sprint("text ", i, j)
				if got, err := c.post(server.URL, text); err != nil || got != text {
					t.Errorf("%q, %v; want %q", got, err, text)
				}
			}
		})
	}
	group.Wait()
}

// TestUnixSocket checks that Dial decides where a host is.
func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	c := newClient(t, func(tr *plainhttp.Transport) {
		tr.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	})
	if got, err := c.post("http://localhost/", ""); err != nil || got != "localhost" {
		t.Errorf("%q, %v", got, err)
	}
}

// script serves each connection that it accepts by the function of its turn, closes it then,
// and counts the requests that its functions read.
type script struct {
	l        net.Listener
	requests atomic.Int64
	running  sync.WaitGroup
}

func newScript(t *testing.T, conns ...func(s *script, in *bufio.Reader, out net.Conn)) *script {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{l: l}
	s.running.Go(func() {
		for _, serve := range conns {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() {
				defer c.Close()
				serve(s, bufio.NewReader(c), c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.running.Wait()
	})
	return s
}

func (s *script) url() string { return "http://" + s.l.Addr().String() + "/" }

// read reads a request; false if none came.
func (s *script) read(in *bufio.Reader) bool {
	r, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, r.Body)
	s.requests.Add(1)
	return true
}

const good = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"

// TestIdleConnectionThatWasClosed checks that a request goes to another connection if the
// server has closed the idle one, or has sent an answer on it that nobody has asked for.
func TestIdleConnectionThatWasClosed(t *testing.T) {
	for what, unasked := range map[string]string{"closed": "", "unasked": "HTTP/1.1 408 Request Timeout\r\nContent-Length: 3\r\n\r\nbad"} {
		t.Run(what, func(t *testing.T) {
			answered, after := make(chan struct{}), make(chan struct{})
			s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
				s.read(in)
				_, _ = io.WriteString(out, good)
				<-answered
				_, _ = io.WriteString(out, unasked)
				if unasked == "" {
					_ = out.Close()
				}
				close(after)
				_, _ = in.Peek(1) // until the client closes it
			}, func(s *script, in *bufio.Reader, out net.Conn) {
				s.read(in)
				_, _ = io.WriteString(out, good)
			})
			c := newClient(t)
			for i := range 2 {
				if got, err := c.post(s.url(), "x"); err != nil || got != "good" {
					t.Fatalf("%d: %q, %v", i, got, err)
				}
				if i == 0 {
					close(answered)
					<-after
				}
			}
			c.wantOpened(2)
		})
	}
}

// TestRequestIsSentAgain checks that a request that an idle connection could not carry is
// sent again if it can have one effect only, and never otherwise.
func TestRequestIsSentAgain(t *testing.T) {
	for what, want := range map[string]int64{"POST with a mark": 3, "GET": 3, "POST": 2} {
		t.Run(what, func(t *testing.T) {
			s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
				s.read(in)
				_, _ = io.WriteString(out, good)
				s.read(in) // and no answer
			}, func(s *script, in *bufio.Reader, out net.Conn) {
				s.read(in)
				_, _ = io.WriteString(out, good)
			})
			c := newClient(t)
			method, marked := strings.CutSuffix(what, " with a mark")
			ask := func() (string, error) {
				r, err := http.NewRequestWithContext(t.Context(), method, s.url(), strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				if marked {
					r.Header["Idempotency-Key"] = nil
				}
				return c.do(r)
			}
			if got, err := ask(); err != nil || got != "good" {
				t.Fatalf("%q, %v", got, err)
			}
			got, err := ask()
			if again := want == 3; again != (err == nil) || again && got != "good" {
				t.Errorf("%q, %v", got, err)
			}
			if n := s.requests.Load(); n != want {
				t.Errorf("%d requests came, want %d", n, want)
			}
		})
	}
}

// TestNewConnectionIsNotTriedAgain checks that a fresh connection that answers nothing is an
// error, and so is half an answer.
func TestNewConnectionIsNotTriedAgain(t *testing.T) {
	for what, answer := range map[string]string{"nothing": "", "half a header": "HTTP/1.1 200 OK\r\nContent-", "half a body": good[:len(good)-2], "no HTTP": "* OK IMAP\r\n\r\n",
		"a long header": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20+10) + "\r\n\r\n", "another protocol": "HTTP/1.1 101 Switching Protocols\r\n\r\n"} {
		t.Run(what, func(t *testing.T) {
			s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
				s.read(in)
				_, _ = io.WriteString(out, answer)
			})
			c := newClient(t)
			if got, err := c.post(s.url(), "x"); err == nil {
				t.Errorf("no error, and %q", got)
			}
			c.wantOpened(1)
			if n := s.requests.Load(); n != 1 {
				t.Errorf("%d requests came", n)
			}
		})
	}
}

// TestAnswerBeforeTheRequestEnds checks that an answer counts that a server gives before it
// has read the whole request, and that its connection is not used again.
func TestAnswerBeforeTheRequestEnds(t *testing.T) {
	const refused = "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlong"
	s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
		_, _ = in.Peek(1)
		_, _ = io.WriteString(out, refused)
	}, func(s *script, in *bufio.Reader, out net.Conn) {
		_, _ = in.Peek(1)
		_, _ = io.WriteString(out, refused)
	})
	c := newClient(t)
	for range 2 {
		if got, err := c.post(s.url(), "x"); err != nil || got != "long" {
			t.Errorf("%q, %v", got, err)
		}
	}
	c.wantOpened(2)
}

// TestAnnouncingAnswersArePassedOver checks that answers of class 1xx are not the answer.
func TestAnnouncingAnswersArePassedOver(t *testing.T) {
	s := newScript(t, func(s *script, in *bufio.Reader, out net.Conn) {
		s.read(in)
		_, _ = io.WriteString(out, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+good)
	})
	if got, err := newClient(t).post(s.url(), "x"); err != nil || got != "good" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestContextEnds checks that the end of the context ends the wait for the header, that for
// the rest of the body, and the write of a request that nobody reads, each with its cause.
func TestContextEnds(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "first\n")
			_ = http.NewResponseController(w).Flush()
		}
		if r.URL.Path == "/write" {
			<-t.Context().Done()
			return
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	cause := errors.New("enough")
	c := newClient(t)
	for _, path := range []string{"/header", "/body"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/header" {
			time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
			if _, err := c.do(r); !errors.Is(err, cause) {
				t.Errorf("%s: %v", path, err)
			}
		} else {
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(io.LimitReader(resp.Body, 6)).ReadString('\n')
			if err != nil || line != "first\n" {
				t.Fatalf("%q, %v", line, err)
			}
			time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, cause) {
				t.Errorf("%s: %v", path, err)
			}
			_ = resp.Body.Close()
		}
		<-ended // the server has seen the connection end
	}
	c.wantOpened(2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.do(r); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	c.wantOpened(2)
}

// TestWriteEndsWithContext checks that a request that nobody reads ends with its context.
func TestWriteEndsWithContext(t *testing.T) {
	release := make(chan struct{})
	s := newScript(t, func(*script, *bufio.Reader, net.Conn) { <-release })
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url(), bytes.NewReader(make([]byte, 64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newClient(t).do(r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// TestCloseWhileReading checks that Close of a body ends a Read that blocks, and that the
// connection is not used again.
func TestCloseWhileReading(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	c := newClient(t)
	for range 2 {
		resp, err := c.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Millisecond, func() { _ = resp.Body.Close() })
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the body ended without an error")
		}
	}
	c.wantOpened(2)
}

// TestIdleConnectionsEnd checks that connections that carry nothing are closed: after their
// time, above their number, and by CloseIdleConnections.
func TestIdleConnectionsEnd(t *testing.T) {
	var open, most atomic.Int64
	arrived, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/together" {
			arrived <- struct{}{}
			<-answer
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	wantOpen := func(when string, want int64) {
		t.Helper()
		for range 500 {
			if open.Load() == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s: %d connections are open, want %d", when, open.Load(), want)
	}
	together := func(c *client) {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if _, err := c.post(server.URL+"/together", ""); err != nil {
					t.Error(err)
				}
			})
		}
		for range 8 {
			<-arrived
		}
		for range 8 {
			answer <- struct{}{}
		}
		group.Wait()
	}
	c := newClient(t)
	together(c)
	c.wantOpened(8)
	wantOpen("after eight at a time", 4)
	c.CloseIdleConnections()
	wantOpen("after CloseIdleConnections", 0)
	c = newClient(t, func(tr *plainhttp.Transport) { tr.IdleTimeout = 100 * time.Millisecond })
	together(c)
	wantOpen("after their time", 0)
}

// TestOtherURLsAreRefused checks that nothing else than plain HTTP is asked for.
func TestOtherURLsAreRefused(t *testing.T) {
	c := newClient(t)
	for _, url := range []string{"https://user:secret@localhost/", "unix:/x", "http:///x"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Transport.RoundTrip(r)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	c.wantOpened(0)
}
