package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/internal/testkit/paused"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestMain(m *testing.M) {
	paused.Child(func(ctx context.Context, target string, t fence.Token) (string, error) {
		if err := put(ctx, target+"/naive", t, "old data"); err != nil {
			return "", err
		}
		return "it let it pass", put(ctx, target+"/guarded/x", t, "old data")
	})
	servers.Main(m)
}

// put writes through a client with a Transport.
func put(ctx context.Context, url string, t fence.Token, data string) error {
	base := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: &httpfence.Transport{
		Token: func(*http.Request) fence.Token { return t },
		Base:  base,
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(data))
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := httpfence.Err(resp); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// pages is the memory of a server.
type pages struct {
	mu   sync.Mutex
	text map[string]string
}

func (p *pages) get(path string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text[path]
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodPut {
		p.text[r.URL.Path] = string(b)
	}
	_, _ = io.WriteString(w, p.text[r.URL.Path])
}

func serve(t testing.TB) (*pages, string) {
	p := &pages{text: map[string]string{}}
	mux := http.NewServeMux()
	mux.Handle("/naive", p)
	mux.Handle("/guarded/", httpfence.Middleware(new(fence.Guards), func(r *http.Request) string { return r.URL.Path })(p))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return p, s.URL
}

func tok(v uint64, owner string) fence.Token { return fence.Token{Value: v, Owner: owner} }

func TestMiddlewareAnswersByToken(t *testing.T) {
	_, url := serve(t)
	do := func(method string, h http.Header) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+"/guarded/x", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header, r.Close = h, true
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	of := func(x fence.Token) http.Header {
		h := http.Header{}
		httpfence.Set(h, x)
		return h
	}
	reader := fence.Token{Value: 6, Shared: true}
	for i, s := range []struct {
		method string
		header http.Header
		want   int
	}{
		{"PUT", of(tok(5, "näme/ %\r\n")), 200},
		{"PUT", of(tok(5, "näme/ %\r\n")), 200},
		{"PUT", of(tok(4, "näme/ %\r\n")), 412},
		{"PUT", of(tok(5, "")), 409},
		{"POST", of(reader), 200},
		{"DELETE", http.Header{}, 428},
		{"PUT", of(tok(0, "")), 428},
		{"GET", http.Header{}, 200},
		{"PUT", http.Header{"Holdfast-Token": {"-1"}}, 400},
		{"PUT", http.Header{"Holdfast-Token": {""}}, 400},
		{"PUT", http.Header{"Holdfast-Token": {"99999999999999999999"}}, 400},
		{"PUT", http.Header{"Holdfast-Token": {"7", "8"}}, 400},
		{"PUT", http.Header{"Holdfast-Token": {"7"}, "Holdfast-Token-Owner": {"%zz"}}, 400},
		{"PUT", http.Header{"Holdfast-Token": {"7"}, "Holdfast-Token-Shared": {"yes"}}, 400},
		{"PUT", of(tok(6, "")), 200},
		{"POST", of(reader), 200},
		{"PATCH", of(tok(1<<64-1, "")), 200},
		{"POST", of(reader), 412},
	} {
		resp := do(s.method, s.header)
		if resp.StatusCode != s.want {
			t.Errorf("step %d: %s with %v is answered %d, want %d", i, s.method, s.header, resp.StatusCode, s.want)
		}
		stale, _ := errors.AsType[*fence.StaleError](httpfence.Err(resp))
		switch {
		case (stale != nil) != (s.want == 412 || s.want == 409):
			t.Errorf("step %d: Err is %v", i, stale)
		case s.want == 409 && (!stale.Twin() || stale.Highest != tok(5, "näme/ %\r\n")):
			t.Errorf("step %d: Err is %#v", i, stale)
		}
	}
	// A 412 for another condition is not a refusal of the token.
	r := httptest.NewRequest("PUT", "/", nil)
	httpfence.Set(r.Header, tok(3, ""))
	if err := httpfence.Err(&http.Response{StatusCode: 412, Request: r}); err != nil {
		t.Error(err)
	}
}

func TestTransportNeedsAToken(t *testing.T) {
	closed := false
	tr := &httpfence.Transport{Token: func(*http.Request) fence.Token { return fence.Token{} }}
	r := httptest.NewRequest("PUT", "http://localhost/", nil)
	r.Body = body{&closed}
	if _, err := tr.RoundTrip(r); !errors.Is(err, fence.ErrNoToken) || !closed {
		t.Errorf("without a token: %v, body closed %t", err, closed)
	}
}

type body struct{ closed *bool }

func (body) Read([]byte) (int, error) { return 0, io.EOF }
func (b body) Close() error           { *b.closed = true; return nil }

// TestOneWriterAtATime checks that a request waits while another is handled,
// and that one with a lower token is refused meanwhile. A request whose context
// ends while it waits is answered as well.
func TestOneWriterAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	h := httpfence.Middleware(new(fence.Guards), func(*http.Request) string { return "x" })(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-leave }))
	do := func(ctx context.Context, v uint64) int {
		r := httptest.NewRequest("PUT", "/", nil).WithContext(ctx)
		httpfence.Set(r.Header, tok(v, ""))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	first := make(chan int)
	go func() { first <- do(t.Context(), 5) }()
	<-entered
	if got := do(t.Context(), 4); got != httpfence.StatusStale {
		t.Errorf("an old token meanwhile gets %d", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got := do(ctx, 6); got != http.StatusServiceUnavailable {
		t.Errorf("who gave up waiting gets %d", got)
	}
	close(leave)
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first gets %d", got)
	}
}

// TestF12_PausedHolder stops a holder past its lease. Another process takes
// over and writes, and the first one wakes up and writes as well.
func TestF12_PausedHolder(t *testing.T) {
	p, url := serve(t)
	h := paused.Start(t, url)
	for _, path := range []string{"/naive", "/guarded/x"} {
		if err := put(t.Context(), url+path, h.Next, "new data"); err != nil {
			t.Fatal(err)
		}
	}
	if said, refused := h.Wake(); !refused {
		t.Errorf("the late write was not refused: %s", said)
	}
	if got := p.get("/naive"); got != "old data" {
		t.Errorf("without the guard there is %q: the test has not shown the damage", got)
	}
	if got := p.get("/guarded/x"); got != "new data" {
		t.Errorf("with the guard there is %q", got)
	}
}

// Example sends requests that carry the token of the hold that they are made
// under.
func Example() {
	server := httptest.NewServer(httpfence.Middleware(new(fence.Guards), func(r *http.Request) string { return r.URL.Path })(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "written") })))
	defer server.Close()

	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	client := &http.Client{Transport: &httpfence.Transport{
		Base: server.Client().Transport,
		Token: func(r *http.Request) fence.Token {
			return fence.Token{Value: holdfast.Token(r.Context(), "invoice/42")}
		},
	}}
	post := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/invoice/42", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		fmt.Println(resp.Status)
		return httpfence.Err(resp) // fence.ErrStale: stop
	}
	fmt.Println(locks.Do(context.Background(), "invoice/42", post))
	fmt.Println(errors.Is(post(context.Background()), fence.ErrNoToken))
	// Output:
	// 200 OK
	// <nil>
	// true
}
