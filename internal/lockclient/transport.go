package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/plainhttp"
)

// maxAnswer is the length of the longest answer that is read.
const maxAnswer = 64 << 20

// newTransport returns the connections to the servers of an address.
func newTransport(a *address) http.RoundTripper {
	dialer := net.Dialer{Timeout: driver.OpenLimit}
	dial := dialer.DialContext
	if a.unix {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", a.hosts[0])
		}
	}
	if a.tls == nil {
		return &plainhttp.Transport{Dial: dial, MaxIdle: maxIdle, IdleTimeout: idleTimeout}
	}
	return &http.Transport{
		TLSClientConfig: a.tls, TLSHandshakeTimeout: driver.OpenLimit, ForceAttemptHTTP2: true, DialContext: dial,
		MaxIdleConns: 64, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
}

const (
	maxIdle     = 16               // connections to a server
	idleTimeout = 60 * time.Second // a server ends them after 90 s
)

// bases returns what the URLs of requests to each server begin with.
func (a *address) bases() []string {
	switch {
	case a.unix:
		return []string{"http://localhost"}
	case a.tls != nil:
		return prefixed("https://", a.hosts)
	}
	return prefixed("http://", a.hosts)
}

func prefixed(prefix string, hosts []string) []string {
	out := make([]string, len(hosts))
	for i, h := range hosts {
		out[i] = prefix + h
	}
	return out
}

// bearer reads the token, which is changed by changing the file.
func (a *address) bearer() (string, error) {
	if a.tokenFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return "", fmt.Errorf("option token_file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("option token_file: the file has no token: one line that a header can have")
	}
	return token, nil
}

// isUnserved reports whether the server could serve nothing of the request.
func (a *answer) isUnserved() bool {
	return a.status >= http.StatusInternalServerError || len(a.Holds) > 0 && !slices.ContainsFunc(a.Holds, func(e entry) bool { return !e.isUnserved() })
}

// problem turns an answer that is not a success into an error.
func (e *entry) problem(status int, after time.Duration) error {
	text := e.Detail
	if text == "" {
		text = e.Code
	}
	err := fmt.Errorf("the lock server answers %d %s: %s", status, e.Code, text)
	switch {
	case e.Code == "draining", e.Code == "too_many", e.Code == "overloaded":
		return driver.NotReady(after, "%w", err)
	case e.Code == "store_unavailable":
		return &driver.Error{Class: driver.Unavailable, Err: err, NotReady: after > 0, RetryAfter: after}
	case e.Code == "too_early":
		return driver.Wrap(driver.NotDone, err)
	case status >= http.StatusInternalServerError:
		return driver.Wrap(driver.Unknown, err)
	}
	return driver.Wrap(driver.Refused, err)
}
