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
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// serverList is the servers of a URL, and the one whose turn it is. Its requests end with
// life. Nothing is sent, and no other mutex taken, under its mutex.
type serverList struct {
	address *address
	bases   []string // of the URLs of requests, by server
	names   []string // of the servers, for people
	http    *http.Client
	life    context.Context

	mu     sync.Mutex
	at     int           // the server whose turn it is
	turned chan struct{} // closed when it is another one's
	took   time.Duration // that answers take, the longest of late
	group  string        // of the first answer
}

func newServerList(life context.Context, a *address, tr http.RoundTripper) serverList {
	return serverList{
		address: a, bases: a.bases(), names: a.hosts, life: life, turned: make(chan struct{}),
		http: &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// find asks one server after another who they are, and makes it the turn of the
// first that serves.
func (s *serverList) find(ctx context.Context) (*answer, error) {
	var errs []error
	for at := range s.bases {
		limit := time.Until(deadlineOf(ctx)) / time.Duration(len(s.bases)-at)
		try, cancel := context.WithTimeout(ctx, limit)
		a, err := s.askAt(try, at, http.MethodGet, "/v1/server", nil)
		cancel()
		if err == nil && a.status != http.StatusOK {
			err = a.problem(a.status, a.after)
		}
		if err == nil && a.Limits.MaxTTL <= 0 {
			err = driver.Errorf(driver.Refused, "lock server %s: it does not tell what TTLs it allows", s.names[at])
		}
		if err == nil {
			s.at = at
			return a, nil
		}
		if class := driver.ClassOf(err); class == driver.Refused {
			return nil, err
		}
		errs = append(errs, err)
	}
	if ctx.Err() != nil && len(errs) == 0 {
		errs = append(errs, context.Cause(ctx))
	}
	return nil, &driver.Error{Class: driver.Unavailable, Err: errors.Join(errs...)}
}

const releasePath = "/v1/release"

// newRequest returns a request to a server.
func (s *serverList) newRequest(ctx context.Context, at int, method, path string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, driver.Wrap(driver.Refused, err)
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.bases[at]+path, content)
	if err != nil {
		return nil, driver.Errorf(driver.Refused, "lockclient: a host of the URL is malformed")
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if body != nil && path != releasePath {
		// It may be sent again on a fresh connection: it has one effect. A header without a
		// value is not sent. A release is not, because the core has to know of each: a later
		// one says gone if an earlier one was carried out.
		r.Header["Idempotency-Key"] = nil
	}
	token, err := s.address.bearer()
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
func (s *serverList) askAt(ctx context.Context, at int, method, path string, body any) (*answer, error) {
	ctx, end := s.during(ctx)
	defer end()
	r, err := s.newRequest(ctx, at, method, path, body)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return nil, s.failure(ctx, at, err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode}
	if err := s.checkHead(at, resp); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, s.failure(ctx, at, err)
	}
	if err := json.Unmarshal(b, a); err != nil {
		return nil, driver.Errorf(driver.Unknown, "lock server %s: an answer that is no JSON", s.names[at])
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.after = time.Duration(seconds) * time.Second
	}
	return a, s.checkGroup(at, a)
}

// checkHead refuses the answer of a proxy.
func (s *serverList) checkHead(at int, resp *http.Response) error {
	if resp.Header.Get("Holdfast") != "1" {
		return driver.Errorf(driver.Unknown, "lock server %s: something else answers there, with status %d", s.names[at], resp.StatusCode)
	}
	return nil
}

// checkGroup refuses the answer of a server with another store than the first one's.
func (s *serverList) checkGroup(at int, a *answer) error {
	if a.Group == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.group {
	case "":
		s.group = a.Group
	case a.Group:
	default:
		return driver.Errorf(driver.Refused, "lock server %s: its store is not that of the server asked before", s.names[at])
	}
	return nil
}

// ask sends a request to the server whose turn it is.
func (s *serverList) ask(ctx context.Context, method, path string, body any) (*answer, error) {
	return s.askTurn(ctx, s.turn(), method, path, body)
}

// turn returns the server whose turn it is.
func (s *serverList) turn() int {
	at, _ := s.turnAndEnd()
	return at
}

// turnAndEnd returns the server whose turn it is, and a channel that is closed when it is
// another one's.
func (s *serverList) turnAndEnd() (at int, turned <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.turned
}

// fairTry is the least time in which a server has to answer. The second server of a call is
// asked at the end of the call's time, if the first one was silent: without an answer of
// both, it would be the silent one's turn again, until the lease ends.
const fairTry = 10 * time.Millisecond

// askTurn sends a request to a server. An answer by which others than that server should
// go on makes it the next one's turn, and so does none, unless the caller has given up,
// or its time was over when the request was sent: neither says anything about the server.
func (s *serverList) askTurn(ctx context.Context, at int, method, path string, body any) (*answer, error) {
	sent := time.Now()
	a, err := s.askAt(ctx, at, method, path, body)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
	case err != nil && ctx.Err() != nil && time.Since(sent) < fairTry:
	case err != nil || a.Draining || a.status >= http.StatusInternalServerError || slices.ContainsFunc(a.Holds, entry.isUnserved):
		s.leaveServer(at)
	default:
		took := time.Since(sent)
		s.mu.Lock()
		s.took = max(took, s.took-(s.took-took)/8)
		s.mu.Unlock()
	}
	return a, err
}

// tries is the number of requests that one call about tickets of a TTL may send, and
// patience is the time between them. A server of several is asked after a sixth of the TTL,
// or three times the time that answers take: the core gives a slow store more time than a
// silent server deserves. One host may be a balancer. The core gives a call a sixth of the
// TTL, in which a hold may have to be renewed and then resumed, so the requests to that
// host follow each other within a quarter of that time.
func (s *serverList) tries(ttl time.Duration) (tries int, patience time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bases) == 1 {
		return 4, min(max(3*s.took, ttl/60), ttl/24)
	}
	return len(s.bases), max(min(max(ttl/6, 50*time.Millisecond), 5*time.Second), 3*s.took)
}

// askInTurn posts a request about tickets of a TTL, and sends it again to the next server if
// the first one does not answer in time or cannot serve; a balancer with one host chooses.
// The requests are about ids, so all have one effect. Each may still be answered: the first
// answer that serves counts. Without any, the core's next call is the next try.
func (s *serverList) askInTurn(ctx context.Context, ttl time.Duration, path string, body any) (*answer, error) {
	type reply struct {
		a   *answer
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	tries, patience := s.tries(ttl)
	replies := make(chan reply, tries)
	next := time.NewTimer(patience)
	defer next.Stop()
	sent, open, at := 0, 0, 0
	ask := func() {
		if open > 0 {
			s.leaveServer(at)
		}
		at = s.turn()
		from := at
		sent, open = sent+1, open+1
		running.Go(func() {
			a, err := s.askTurn(ctx, from, http.MethodPost, path, body)
			replies <- reply{a, err}
		})
		if sent < tries {
			next.Reset(patience)
		} else {
			next.Stop()
		}
	}
	ask()
	var last reply
	for {
		select {
		case <-next.C:
			ask()
		case r := <-replies:
			open--
			if last.err == nil || r.err == nil || driver.ClassOf(last.err) != driver.Unknown {
				last = r // else an earlier request may have been carried out
			}
			unserved := r.err == nil && r.a.isUnserved()
			switch {
			case unserved && sent < tries && ctx.Err() == nil && s.life.Err() == nil:
				ask()
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

// leaveServer makes it the next server's turn, unless another request did.
func (s *serverList) leaveServer(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != at || len(s.bases) == 1 {
		return
	}
	s.at = (at + 1) % len(s.bases)
	close(s.turned)
	s.turned = make(chan struct{})
}

// during returns a context of a call, which ends with the driver, too.
func (s *serverList) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(driver.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// failure is the error of a request without an answer.
func (s *serverList) failure(ctx context.Context, at int, err error) error {
	if s.life.Err() != nil {
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
	return &driver.Error{Class: class, Err: fmt.Errorf("lock server %s: %w", s.names[at], err)}
}
