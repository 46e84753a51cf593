package servers

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// RedisError is an error reply of the server, in its own words.
type RedisError string

// Error returns the server's words.
func (e RedisError) Error() string { return string(e) }

// RedisConn is a plain connection: it does not retry, does not reconnect, and
// sends only the requests of the test. It is for one goroutine.
type RedisConn struct {
	net.Conn
	r *bufio.Reader
}

// Dial opens a connection and logs in if the server has a password.
func (s *RedisServer) Dial(ctx context.Context) (*RedisConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	if s.Certs != nil {
		conn = tls.Client(conn, s.Certs.Client())
	}
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end)
	}
	c := &RedisConn{conn, bufio.NewReader(conn)}
	if s.Password != "" {
		if _, err := c.Do("AUTH", s.Password); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

func (s *RedisServer) exchange(ctx context.Context, args ...string) (any, error) {
	c, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

// Do sends a command and reads the answer, as [RedisServer.Try] does.
func (c *RedisConn) Do(args ...string) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Send writes a command without waiting for its answer.
func (c *RedisConn) Send(args ...string) error {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := c.Write(b)
	return err
}

// Receive reads one answer, or one message of a subscription.
func (c *RedisConn) Receive() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("not an answer of Redis: %q", line)
	}
	kind, text := line[0], line[1:len(line)-2]
	if kind == '+' {
		return text, nil
	}
	if kind == '-' {
		return nil, RedisError(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not an answer of Redis: %q", line)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case kind == '*':
		list := make([]any, n)
		for i := range list {
			v, err := c.Receive()
			if re := RedisError(""); errors.As(err, &re) {
				v = re
			} else if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	}
	return nil, fmt.Errorf("not an answer of Redis: %q", line)
}
