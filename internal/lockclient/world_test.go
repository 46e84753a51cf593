package lockclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network carries requests to handlers without sockets, so that it works in bubbles.
type network struct {
	mu      sync.Mutex
	servers map[string]http.Handler // by host and port; nil: no connection is accepted
	silent  map[string]bool         // requests are carried out, and answers are lost
	running sync.WaitGroup
	cut     atomic.Bool // writes to open answers are lost
}

func newNetwork() *network {
	return &network{servers: make(map[string]http.Handler), silent: make(map[string]bool)}
}

func (n *network) set(host string, h http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[host] = h
}

func (n *network) setSilent(host string, silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent[host] = silent
}

// RoundTrip lets the server of the request's host answer it.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	h, silent := n.servers[r.URL.Host], n.silent[r.URL.Host]
	n.mu.Unlock()
	if h == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	in := r.Clone(r.Context())
	in.Host, in.RemoteAddr, in.RequestURI = r.URL.Host, "127.0.0.1:1", r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	read, write := io.Pipe()
	out := &answerWriter{cut: &n.cut, header: make(http.Header), body: write, began: make(chan int, 1)}
	n.running.Go(func() {
		h.ServeHTTP(out, in)
		out.WriteHeader(http.StatusOK)
		_ = write.Close()
	})
	stop := context.AfterFunc(r.Context(), func() { _ = read.CloseWithError(context.Cause(r.Context())) })
	if silent {
		go func() { _, _ = io.Copy(io.Discard, read) }()
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	select {
	case status := <-out.began:
		return &http.Response{StatusCode: status, Header: out.header, Body: &answerBody{read, stop}, Request: r}, nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

type answerBody struct {
	io.ReadCloser
	stop func() bool
}

func (b *answerBody) Close() error { b.stop(); return b.ReadCloser.Close() }

type answerWriter struct {
	cut    *atomic.Bool
	header http.Header
	body   io.Writer
	once   sync.Once
	began  chan int
}

func (w *answerWriter) Header() http.Header { return w.header }

func (w *answerWriter) WriteHeader(status int) { w.once.Do(func() { w.began <- status }) }

func (w *answerWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.cut.Load() {
		return len(b), nil
	}
	return w.body.Write(b)
}

func (w *answerWriter) Flush() {}

// tester is the part of a test that a world uses.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// world is a store with lock servers, a network to them, and their clients.
type world struct {
	tester
	net   *network
	store *memlock.Store
	hosts []string
}

func newWorld(t tester, servers int) *world {
	w := &world{tester: t, net: newNetwork(), store: memlock.NewStore()}
	for i := range servers {
		host := "server-" + string(rune('a'+i)) + ":7420"
		w.hosts = append(w.hosts, host)
		w.start(host)
	}
	t.Cleanup(w.net.running.Wait)
	return w
}

// start starts a server at a host, with a client of its own.
func (w *world) start(host string) *lockserver.Server {
	w.Helper()
	return w.startOver(host, memlock.New(w.store))
}

// startOver is start with a driver of the server's own.
func (w *world) startOver(host string, d driver.Driver) *lockserver.Server {
	w.Helper()
	c, err := holdfast.New(d)
	if err != nil {
		w.Fatalf("%v", err)
	}
	s, err := lockserver.New(c, lockserver.Options{
		Auth:   &lockserver.Auth{Identify: everything},
		Hosts:  []string{"server-a", "server-b", "localhost"},
		Limits: lockserver.Limits{NameSize: 4096, MinTTL: c.Traits().MinTTL, MaxTTL: c.Traits().MaxTTL},
	})
	if err != nil {
		w.Fatalf("%v", err)
	}
	w.net.set(host, s)
	w.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Drain(ctx)
		_ = c.Close()
	})
	return s
}

// cuttable is a way to a store that can be cut: requests are then answered never.
type cuttable struct {
	*faults.Hooked
	cut atomic.Bool
}

func newCuttable(s *memlock.Store) *cuttable {
	d := new(cuttable)
	d.Hooked = faults.Passing(memlock.New(s), func(ctx context.Context, _ *faults.Request) error {
		if !d.cut.Load() {
			return nil
		}
		<-ctx.Done()
		return driver.Wrap(driver.Unknown, context.Cause(ctx))
	})
	return d
}

// kill ends a server as far as others can see.
func (w *world) kill(host string) { w.net.set(host, nil) }

// open opens a driver of the servers.
func (w *world) open() *Driver {
	w.Helper()
	d, err := open(context.Background(), &address{hosts: w.hosts}, w.net)
	if err != nil {
		w.Fatalf("%v", err)
	}
	return d
}

// client opens a client of the servers.
func (w *world) client(opts ...holdfast.ClientOption) *holdfast.Client {
	w.Helper()
	c, err := holdfast.New(w.open(), opts...)
	if err != nil {
		w.Fatalf("%v", err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

func everything(*http.Request) (lockserver.Principal, error) {
	all := []lockserver.Right{lockserver.RightRead, lockserver.RightLock, lockserver.RightBreak}
	return lockserver.Principal{Name: "tester", Grants: []lockserver.Grant{{May: all}}}, nil
}
