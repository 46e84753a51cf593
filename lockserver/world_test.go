package lockserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a store with lock servers, in a bubble.
type world struct {
	*testing.T
	store *memlock.Store
	stops []func()
}

// bubble runs f in a world of its own, and ends what is left afterwards.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memlock.NewStore()}
		defer func() {
			for _, stop := range w.stops {
				stop()
			}
		}()
		f(w)
	})
}

// client returns a Go program's client of the store.
func (w *world) client(opts ...holdfast.ClientOption) *holdfast.Client {
	return w.clientOf(memlock.New(w.store), opts...)
}

func (w *world) clientOf(d holdfast.Driver, opts ...holdfast.ClientOption) *holdfast.Client {
	w.Helper()
	c, err := holdfast.New(d, opts...)
	if err != nil {
		w.Fatal(err)
	}
	w.stops = append(w.stops, func() { _ = c.Close() })
	return c
}

// server returns a lock server with a client of its own.
func (w *world) server() *Server { return w.serverWith(w.client(), Options{}) }

func (w *world) serverWith(c *holdfast.Client, o Options) *Server {
	w.Helper()
	s, err := New(c, o)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// reply is the answer of a server.
type reply struct {
	status int
	body   map[string]any
	raw    string
	header http.Header
}

func (r reply) text(name string) string { return fmt.Sprint(r.body[name]) }

func (r reply) number(name string) int64 {
	n, _ := r.body[name].(json.Number)
	i, _ := n.Int64()
	return i
}

// entry returns the i-th entry of a batch.
func (r reply) entry(i int) reply {
	list, _ := r.body["holds"].([]any)
	if i >= len(list) {
		return reply{}
	}
	e, _ := list[i].(map[string]any)
	return reply{status: r.status, body: e, raw: r.raw}
}

// post sends a form; fields are name, value, …
func (w *world) post(s http.Handler, path string, fields ...string) reply {
	w.Helper()
	return w.postCtx(context.Background(), s, path, fields...)
}

func (w *world) postCtx(ctx context.Context, s http.Handler, path string, fields ...string) reply {
	w.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return w.send(s, r)
}

func (w *world) get(s http.Handler, path string) reply {
	w.Helper()
	return w.send(s, httptest.NewRequest(http.MethodGet, path, nil))
}

func (w *world) send(s http.Handler, r *http.Request) reply {
	w.Helper()
	if r.Host == "example.com" {
		r.Host = "127.0.0.1:7420"
	}
	out := httptest.NewRecorder()
	s.ServeHTTP(out, r)
	a := reply{status: out.Code, raw: out.Body.String(), header: out.Result().Header}
	if a.header.Get("Holdfast") != "1" && r.Context().Err() == nil {
		w.Errorf("%s %s: an answer without Holdfast", r.Method, r.URL)
	}
	if kind := a.header.Get("Content-Type"); strings.HasSuffix(kind, "json") && kind != "application/x-ndjson" {
		dec := json.NewDecoder(bytes.NewReader(out.Body.Bytes()))
		dec.UseNumber()
		if err := dec.Decode(&a.body); err != nil {
			w.Errorf("%s %s: %v in %q", r.Method, r.URL, err, a.raw)
		}
		for _, bad := range answerBreaches(r.Method, r.URL.Path, a.status, a.header.Get("Content-Type"), a.body) {
			w.Errorf("%s: %s", bad, a.raw)
		}
	}
	return a
}

// id returns the id of a test's n-th try.
func id(n int) string { return fmt.Sprintf("0123456789abcdef.%d", n) }

// acquire asks for a mutex with a TTL of 9 s.
func (w *world) acquire(s http.Handler, n int, name string, more ...string) reply {
	w.Helper()
	return w.post(s, "/v1/acquire", append([]string{"id", id(n), "name", name, "ttl_ms", "9000"}, more...)...)
}

func (w *world) renew(s http.Handler, n int) reply {
	w.Helper()
	return w.post(s, "/v1/renew", "id", id(n)).entry(0)
}

func (w *world) release(s http.Handler, n int, name string, more ...string) reply {
	w.Helper()
	return w.post(s, "/v1/release", append([]string{"id", id(n), "name", name}, more...)...).entry(0)
}

// want checks fields of an answer; numbers are compared as text.
func (w *world) want(what string, r reply, status int, fields ...string) {
	w.Helper()
	if r.status != status {
		w.Errorf("%s: status %d, want %d: %s", what, r.status, status, r.raw)
	}
	for i := 0; i < len(fields); i += 2 {
		if got := r.text(fields[i]); got != fields[i+1] {
			w.Errorf("%s: %s is %s, want %s: %s", what, fields[i], got, fields[i+1], r.raw)
		}
	}
}

// tickets counts the tickets that hold a name, and those that wait.
func (w *world) tickets(c *holdfast.Client, name string) (holders, waiters int) {
	w.Helper()
	info, err := c.Inspect(context.Background(), name)
	if err != nil {
		w.Fatal(err)
	}
	return len(info.Holders), len(info.Waiters)
}

// settle lets everything happen that is due.
func settle() { time.Sleep(time.Millisecond); synctest.Wait() }
