package lockclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// maxAnswer is the length of the longest answer that is read.
const maxAnswer = 64 << 20

// newTransport returns the connections to the servers of an address.
func newTransport(a *address) *http.Transport {
	tr := &http.Transport{
		TLSClientConfig: a.tls, TLSHandshakeTimeout: driver.OpenLimit, ForceAttemptHTTP2: true,
		MaxIdleConns: 64, MaxIdleConnsPerHost: 16, IdleConnTimeout: 60 * time.Second, // a server ends them after 90 s
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	dialer := net.Dialer{Timeout: driver.OpenLimit}
	tr.DialContext = dialer.DialContext
	if a.unix {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", a.hosts[0])
		}
	}
	return tr
}

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

// newRequest returns a request to a server.
func (d *Driver) newRequest(ctx context.Context, at int, method, path string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, driver.Wrap(driver.Refused, err)
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, d.bases[at]+path, content)
	if err != nil {
		return nil, driver.Errorf(driver.Refused, "lockclient: a host of the URL is malformed")
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
		// net/http may send it again on a fresh connection: it has one effect. A header
		// without a value is not sent.
		r.Header["Idempotency-Key"] = nil
	}
	token, err := d.address.bearer()
	if err != nil {
		return nil, driver.Wrap(driver.Refused, fmt.Errorf("lockclient: %w", err))
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r, nil
}

// askAt sends a request to one server and reads its answer. An error says that there was
// none, or that another than a lock server over the same store gave it.
func (d *Driver) askAt(ctx context.Context, at int, method, path string, body any) (*answer, error) {
	ctx, end := d.during(ctx)
	defer end()
	r, err := d.newRequest(ctx, at, method, path, body)
	if err != nil {
		return nil, err
	}
	resp, err := d.http.Do(r)
	if err != nil {
		return nil, d.failure(ctx, at, err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode}
	if err := d.checkHead(at, resp); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, d.failure(ctx, at, err)
	}
	if err := json.Unmarshal(b, a); err != nil {
		return nil, driver.Errorf(driver.Unknown, "lock server %s: an answer that is no JSON", d.names[at])
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		a.after = time.Duration(s) * time.Second
	}
	return a, d.checkGroup(at, a)
}

// checkHead refuses the answer of a proxy.
func (d *Driver) checkHead(at int, resp *http.Response) error {
	if resp.Header.Get("Holdfast") != "1" {
		return driver.Errorf(driver.Unknown, "lock server %s: something else answers there, with status %d", d.names[at], resp.StatusCode)
	}
	return nil
}

// checkGroup refuses the answer of a server with another store than the first one's.
func (d *Driver) checkGroup(at int, a *answer) error {
	if a.Group == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.group {
	case "":
		d.group = a.Group
	case a.Group:
	default:
		return driver.Errorf(driver.Refused, "lock server %s: its store is not that of the server asked before", d.names[at])
	}
	return nil
}

// ask sends a request to the server whose turn it is. An answer by which others than that
// server should go on makes it the next one's turn, and so does none, unless the caller
// has given up, which says nothing about the server.
func (d *Driver) ask(ctx context.Context, method, path string, body any) (*answer, error) {
	d.mu.Lock()
	at := d.at
	d.mu.Unlock()
	sent := time.Now()
	a, err := d.askAt(ctx, at, method, path, body)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
	case err != nil || a.Draining || a.status >= http.StatusInternalServerError || slices.ContainsFunc(a.Holds, entry.isUnserved):
		d.leaveServer(at)
	default:
		took := time.Since(sent)
		d.mu.Lock()
		d.took = max(took, d.took-(d.took-took)/8)
		d.mu.Unlock()
	}
	return a, err
}

// askInTurn posts a request about tickets of a TTL. A server that does not answer in a
// sixth of it, or in three times the time that answers take, is left for the next one
// within the call: the core gives a slow store more time than a silent server deserves. So
// is one that cannot serve. A URL with one host is asked a second time, because that may be
// a balancer with another server behind it. The last try has what is left of the caller's
// time; without any, the core's next call is the next try.
func (d *Driver) askInTurn(ctx context.Context, ttl time.Duration, path string, body any) (*answer, error) {
	missed := false
	for tries := max(2, len(d.bases)); ; tries-- {
		try, cancel := ctx, context.CancelFunc(func() {})
		if tries > 1 {
			d.mu.Lock()
			limit := max(min(max(ttl/6, 50*time.Millisecond), 5*time.Second), 3*d.took)
			d.mu.Unlock()

			try, cancel = context.WithTimeout(ctx, limit)
		}
		a, err := d.ask(try, http.MethodPost, path, body)
		again := tries > 1 && ctx.Err() == nil && d.life.Err() == nil && (err != nil && try.Err() != nil || err == nil && a.isUnserved())
		cancel()
		if !again {
			if a != nil {
				a.missed = missed
			}
			return a, err
		}
		missed = true
	}
}

// isUnserved reports whether the server could serve nothing of the request.
func (a *answer) isUnserved() bool {
	return a.status >= http.StatusInternalServerError || len(a.Holds) > 0 && !slices.ContainsFunc(a.Holds, func(e entry) bool { return !e.isUnserved() })
}

// leaveServer makes it the next server's turn, unless another request did.
func (d *Driver) leaveServer(at int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at != at || len(d.bases) == 1 {
		return
	}
	d.at = (at + 1) % len(d.bases)
	close(d.turned)
	d.turned = make(chan struct{})
}

// during returns a context of a call, which ends with the driver, too.
func (d *Driver) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.life, func() { cancel(driver.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// failure is the error of a request without an answer.
func (d *Driver) failure(ctx context.Context, at int, err error) error {
	if d.life.Err() != nil {
		return driver.ErrClosed
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	class := driver.Unknown
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		class = driver.Refused
	} else if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		class = driver.Unavailable
	}
	if ctx.Err() != nil && class == driver.Unknown {
		err = context.Cause(ctx)
	}
	return &driver.Error{Class: class, Err: fmt.Errorf("lock server %s: %w", d.names[at], err)}
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
