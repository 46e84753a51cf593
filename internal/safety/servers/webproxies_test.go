package servers

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// serveProxy serves a proxy until the test ends, and returns its address.
func serveProxy(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = web.Serve(l) }()
	t.Cleanup(func() { _ = web.Close(); <-done })
	return l.Addr().String()
}

// balancer sends each request to the next server. One that failed is left out for a
// while, as nginx does.
type balancer struct {
	rest    time.Duration // for which a server is left out
	proxies []*httputil.ReverseProxy

	mu     sync.Mutex
	next   int
	failed []time.Time // when each server failed
}

// newBalancer returns a balancer of the servers, which waits a quarter of a TTL for the
// beginning of an answer.
func newBalancer(ttl time.Duration, hosts ...string) *balancer {
	b := &balancer{rest: ttl, failed: make([]time.Time, len(hosts))}
	for i, host := range hosts {
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
		p.FlushInterval = -1
		p.Transport = &http.Transport{ResponseHeaderTimeout: ttl / 4}
		p.ErrorHandler = func(w http.ResponseWriter, r *http.Request, _ error) {
			if r.Context().Err() == nil { // else the client gave it up
				b.mu.Lock()
				b.failed[i] = time.Now()
				b.mu.Unlock()
			}
			w.WriteHeader(http.StatusBadGateway)
		}
		b.proxies = append(b.proxies, p)
	}
	return b
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.proxies[b.choose()].ServeHTTP(w, r)
}

// choose returns the next server that has not failed, or the next one if all have.
func (b *balancer) choose() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.next
	for range b.proxies {
		if time.Since(b.failed[at]) > b.rest {
			break
		}
		at = (at + 1) % len(b.proxies)
	}
	b.next = (at + 1) % len(b.proxies)
	return at
}

// buffer passes an answer on when it has all of it, and cuts the connection of one that
// takes too long, as a stream does.
type buffer struct {
	host  string
	limit time.Duration
}

func (b *buffer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), b.limit)
	defer cancel()
	out := r.Clone(ctx)
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", b.host
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body)
}
