// Package plainhttp sends HTTP/1.1 requests over connections without TLS, and reads their
// answers in the goroutine of the caller.
//
// A connection of net/http.Transport has two goroutines, and a request and its answer pass
// from one to the next. Between two processes of one machine each of these steps takes about
// as long as the message itself. A connection of this package has no goroutine. It
// carries one request at a time, its messages are written and parsed by net/http, and
// between two requests it is kept, as net/http.Transport keeps its connections.
package plainhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Transport is an http.RoundTripper for URLs of scheme http. It knows no proxies. Its
// methods may be called by several goroutines at a time. It must not be copied after its
// first use.
type Transport struct {
	// Dial opens a connection to a host and port of a URL. It must be set.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// MaxIdle is the number of connections to one host that are kept between requests; 0
	// keeps none.
	MaxIdle int

	// IdleTimeout is how long a connection is kept without a request. It must be set if
	// MaxIdle is.
	IdleTimeout time.Duration

	mu    sync.Mutex
	idle  map[string][]*conn // by host and port, the last used one last
	timer *time.Timer        // closes those that are idle for too long; nil: there are none

	ending bool // no request has begun since CloseIdleConnections
}

// RoundTrip sends a request and returns its answer, whose body the caller reads to its end
// or closes. It blocks until the header of the answer has come. The end of the request's
// context ends it with the context's cause, and the reading of the body too.
//
// A request that an idle connection fails to carry, because the server has closed it
// meanwhile, is sent again by another one if that can have one effect only: if it is a GET
// or a HEAD, or has a header Idempotency-Key, as with net/http.Transport. If no other
// connection can be opened then, the error is that of the first one: the server may have
// carried the request out.
//
// The body of a request must not block: the request is written in the goroutine of the
// caller, and its answer is read after that. A server that answers without reading a request
// that the buffers of the connection cannot take has to close the connection.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "http" || r.URL.Host == "" {
		closeBody(r)
		return nil, fmt.Errorf("plainhttp: cannot ask %s: only http://HOST is possible", r.URL.Redacted())
	}
	ctx := r.Context()
	t.begin()
	var failed error // of the last connection that has carried the request
	for {
		if ctx.Err() != nil {
			closeBody(r)
			return nil, context.Cause(ctx)
		}
		c := t.take(r.URL.Host)
		reused := c != nil
		if !reused {
			var err error
			if c, err = t.open(ctx, r.URL); err != nil {
				closeBody(r)
				if failed != nil { // the request may have been carried out
					err = fmt.Errorf("%w; and then %v", failed, err)
				}
				return nil, err
			}
		}
		resp, err := c.roundTrip(r)
		switch {
		case err == nil:
			return resp, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !reused || c.answered || c.unsent || !isReplayable(r):
			return nil, err
		}
		failed = err
		if r, err = rewound(r); err != nil {
			return nil, err
		}
	}
}

// begin notes that a request begins, whose connection may be kept.
func (t *Transport) begin() {
	t.mu.Lock()
	t.ending = false
	t.mu.Unlock()
}

// open opens a connection to the host of a URL.
func (t *Transport) open(ctx context.Context, u *url.URL) (*conn, error) {
	port := u.Port()
	if port == "" {
		port = "80"
	}
	nc, err := t.Dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	return newConn(t, u.Host, nc), nil
}

// take returns a connection to a host that is idle and not closed by the server; nil if
// there is none.
func (t *Transport) take(host string) *conn {
	for {
		t.mu.Lock()
		conns := t.idle[host]
		if len(conns) == 0 {
			t.mu.Unlock()
			return nil
		}
		c := conns[len(conns)-1]
		conns[len(conns)-1] = nil
		t.idle[host] = conns[:len(conns)-1]
		t.mu.Unlock()
		if c.isQuiet() {
			return c
		}
		c.close()
	}
}

// keep makes a connection idle, or closes it if enough are.
func (t *Transport) keep(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending || len(t.idle[c.host]) >= t.MaxIdle {
		c.close()
		return
	}
	if t.idle == nil {
		t.idle = make(map[string][]*conn)
	}
	c.since = time.Now()
	t.idle[c.host] = append(t.idle[c.host], c)
	if t.timer == nil {
		t.timer = time.AfterFunc(t.IdleTimeout, t.closeOld)
	}
}

// closeOld closes the connections that were idle for IdleTimeout.
func (t *Transport) closeOld() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, next := time.Now(), time.Duration(-1)
	for host, conns := range t.idle {
		old := 0 // the first ones are idle for the longest time
		for old < len(conns) && now.Sub(conns[old].since) >= t.IdleTimeout {
			conns[old].close()
			old++
		}
		if conns = append([]*conn(nil), conns[old:]...); len(conns) == 0 {
			delete(t.idle, host)
			continue
		}
		t.idle[host] = conns
		if left := t.IdleTimeout - now.Sub(conns[0].since); next < 0 || left < next {
			next = left
		}
	}
	t.timer = nil
	if next >= 0 {
		t.timer = time.AfterFunc(next, t.closeOld)
	}
}

// CloseIdleConnections closes the connections that carry no request. Those that carry one
// are closed with its answer's end, unless another request begins before that.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ending = true
	for _, conns := range t.idle {
		for _, c := range conns {
			c.close()
		}
	}
	t.idle = nil
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// isReplayable reports whether a request has one effect however often it is sent, and can be
// sent again.
func isReplayable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	_, marked := r.Header["Idempotency-Key"]
	return marked || r.Method == http.MethodGet || r.Method == http.MethodHead
}

// rewound returns a request with its body from the beginning.
func rewound(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, fmt.Errorf("plainhttp: the body of the request: %w", err)
	}
	again := *r
	again.Body = body
	return &again, nil
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// errTooLong is the error of an answer whose header has more than maxHeader bytes.
var errTooLong = errors.New("plainhttp: the header of the answer is too long")
