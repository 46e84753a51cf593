package lockserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// BenchmarkServed measures a lock and its release by HTTP, with a store in this process:
// what remains beside two bare requests is the server's work.
func BenchmarkServed(b *testing.B) {
	c, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	s, err := New(c, Options{})
	if err != nil {
		b.Fatal(err)
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	for _, way := range []struct {
		name    string
		handler http.Handler
		pinned  string
	}{{"bare", bare, ""}, {"served", s, "false"}, {"pinned", s, "true"}} {
		b.Run(way.name, func(b *testing.B) {
			web := httptest.NewServer(way.handler)
			defer web.Close()
			post := func(path string, form url.Values) {
				resp, err := web.Client().PostForm(web.URL+path, form)
				if err != nil {
					b.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Fatalf("%s: %d %s %v", path, resp.StatusCode, body, err)
				}
			}
			b.ReportAllocs()
			for i := range b.N {
				id, name := fmt.Sprintf("%s-%d-%d-0123456789abc", way.name, b.N, i), fmt.Sprintf("costs/%d", i)
				form := url.Values{"id": {id}, "name": {name}}
				acquire := url.Values{"id": {id}, "name": {name}, "ttl_ms": {"30000"}, "pinned": {way.pinned}}
				post("/v1/acquire", acquire)
				post("/v1/release", form)
			}
		})
	}
}
