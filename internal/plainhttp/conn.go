package plainhttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// maxHeader is the length of the longest header of an answer.
const maxHeader = 1 << 20

// conn is a connection, which one request uses at a time.
type conn struct {
	t     *Transport
	host  string
	nc    net.Conn
	in    *bufio.Reader // of the connection itself, by Read
	out   *bufio.Writer // to the connection itself, by Write
	since time.Time     // when it became idle

	left     int64 // bytes that may still be read; errTooLong after them
	answered bool  // a byte has come since the last request was begun
	failed   error // of a write
	unsent   bool  // the body of the last request was at fault, and its rest was not sent
}

func newConn(t *Transport, host string, nc net.Conn) *conn {
	c := &conn{t: t, host: host, nc: nc}
	c.in, c.out = bufio.NewReader(c), bufio.NewWriter(c)
	return c
}

// Read reads what the server sends.
func (c *conn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLong
	}
	if int64(len(b)) > c.left {
		b = b[:c.left]
	}
	n, err := c.nc.Read(b)
	c.left -= int64(n)
	c.answered = c.answered || n > 0
	return n, err
}

// Write sends a part of a request.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.nc.Write(b)
	if err != nil {
		c.failed = err
	}
	return n, err
}

func (c *conn) close() { _ = c.nc.Close() }

// roundTrip sends a request, whose body it closes, and reads the header of the answer. The
// connection is closed if it returns an error, and else passes to the body of the answer.
func (c *conn) roundTrip(r *http.Request) (*http.Response, error) {
	stop := context.AfterFunc(r.Context(), c.close) // ends the call that reads or writes
	c.answered = false
	err := r.Write(c.out)
	if err == nil {
		err = c.out.Flush()
	}
	c.unsent = err != nil && c.failed == nil
	var resp *http.Response
	if !c.unsent {
		// A server that does not read a request to its end may have answered.
		resp, err = c.readHeader(r)
	}
	if err != nil {
		stop()
		c.close()
		return nil, err
	}
	b := &body{c: c, content: resp.Body, ctx: r.Context(), stop: stop, keep: c.failed == nil && !resp.Close && !r.Close}
	if resp.Body == http.NoBody {
		b.end(b.keep)
		return resp, nil
	}
	resp.Body = b
	return resp, nil
}

// readHeader reads the header of the answer to r, after those that announce it.
func (c *conn) readHeader(r *http.Request) (*http.Response, error) {
	c.left = maxHeader
	for {
		resp, err := http.ReadResponse(c.in, r)
		switch {
		case err != nil && c.left <= 0:
			return nil, errTooLong
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, fmt.Errorf("plainhttp: the server changes to another protocol, unasked")
		case resp.StatusCode < http.StatusOK:
			continue
		}
		c.left = math.MaxInt64
		return resp, nil
	}
}

// body is the body of an answer. Its end, or that of the request's context, ends the use of
// the connection.
type body struct {
	c       *conn
	content io.Reader
	ctx     context.Context
	stop    func() bool // ends the watch for the end of ctx
	keep    bool        // the connection can carry another request
	ended   atomic.Bool
	closed  atomic.Bool
}

// Read reads the body. It fails after Close, though what has come is in a buffer.
func (b *body) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.content.Read(p)
	switch {
	case err == io.EOF:
		b.end(b.keep)
	case err != nil:
		b.end(false)
		if b.ctx.Err() != nil {
			err = context.Cause(b.ctx)
		}
	}
	return n, err
}

// Close closes the connection, unless the body was read to its end. It may be called while
// Read blocks, which ends.
func (b *body) Close() error {
	b.closed.Store(true)
	b.end(false)
	return nil
}

// end keeps the connection, or closes it.
func (b *body) end(keep bool) {
	if b.ended.Swap(true) {
		return
	}
	if b.stop() && keep && b.c.in.Buffered() == 0 {
		b.c.t.keep(b.c)
		return
	}
	b.c.close()
}
