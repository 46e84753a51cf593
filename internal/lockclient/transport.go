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
	"sync"
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

// ask sends a request to the server whose turn it is.
func (d *Driver) ask(ctx context.Context, method, path string, body any) (*answer, error) {
	return d.askTurn(ctx, d.turn(), method, path, body)
}

// turn returns the server whose turn it is.
func (d *Driver) turn() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// askTurn sends a request to a server. An answer by which others than that server should
// go on makes it the next one's turn, and so does none, unless the caller has given up,
// which says nothing about the server.
func (d *Driver) askTurn(ctx context.Context, at int, method, path string, body any) (*answer, error) {
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

// tries is the number of requests that one call about tickets of a TTL may send, and
// patience is the time between them. A server of several is asked after a sixth of the TTL,
// or three times the time that answers take: the core gives a slow store more time than a
// silent server deserves. One host may be a balancer. The core gives a call a sixth of the
// TTL, in which a hold may have to be renewed and then resumed, so the requests to that
// host follow each other within a quarter of that time.
func (d *Driver) tries(ttl time.Duration) (tries int, patience time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.bases) == 1 {
		return 4, min(max(3*d.took, ttl/60), ttl/24)
	}
	return len(d.bases), max(min(max(ttl/6, 50*time.Millisecond), 5*time.Second), 3*d.took)
}

// askInTurn posts a request about tickets of a TTL, and sends it again to the next server if
// the first one does not answer in time or cannot serve; a balancer with one host chooses.
// The requests are about ids, so all have one effect. Each may still be answered: the first
// answer that serves counts. Without any, the core's next call is the next try.
func (d *Driver) askInTurn(ctx context.Context, ttl time.Duration, path string, body any) (*answer, error) {
	type reply struct {
		a   *answer
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	tries, patience := d.tries(ttl)
	replies := make(chan reply, tries)
	next := time.NewTimer(0)
	defer next.Stop()
	var last reply
	for sent, open, at := 0, 0, 0; ; {
		select {
		case <-next.C:
			if open > 0 {
				d.leaveServer(at)
			}
			at = d.turn()
			from := at
			sent, open = sent+1, open+1
			running.Go(func() {
				a, err := d.askTurn(ctx, from, http.MethodPost, path, body)
				replies <- reply{a, err}
			})
			if sent < tries {
				next.Reset(patience)
			}
		case r := <-replies:
			open--
			if last.err == nil || r.err == nil || driver.ClassOf(last.err) != driver.Unknown {
				last = r // else an earlier request may have been carried out
			}
			unserved := r.err == nil && r.a.isUnserved()
			switch {
			case unserved && sent < tries && ctx.Err() == nil && d.life.Err() == nil:
				next.Reset(0)
			case (unserved || r.err != nil) && open > 0:
			default:
				if last.a != nil {
					last.a.missed = sent > 1
				}
				return last.a, last.err
			}
		}
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
