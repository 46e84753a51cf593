package lockclient

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestReleaseIsNotSentAgainUnnoticed cuts the connection of a release that a server has read.
// Leave says that its outcome is unknown: the core counts on that when it asks again.
func TestReleaseIsNotSentAgainUnnoticed(t *testing.T) {
	var releases atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Holdfast", "1")
		if r.URL.Path != "/v1/release" {
			_, _ = io.WriteString(w, `{"group":"g","limits":{"max_ttl_ms":60000}}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if releases.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"holds":[{"result":"gone"}]}`)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := Open(ctx, "holdfast://"+server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ticket := &driver.Ticket{ID: "c:1", Name: "n", TTL: time.Minute}
	sts, err := d.Leave(ctx, []driver.Ref{{Ticket: ticket, State: driver.Held}})
	if err == nil {
		err = sts[0].Err
	}
	if err == nil || driver.ClassOf(err) != driver.Unknown {
		t.Errorf("the outcome is not unknown: %+v, %v", sts, err)
	}
	if n := releases.Load(); n != 1 {
		t.Errorf("%d releases came, want 1", n)
	}
}
