package goredis

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// lossy is a connection that loses the answer to a request that was carried
// out, on demand.
type lossy struct {
	net.Conn
	lose *atomic.Bool
}

// Read implements net.Conn.
func (c lossy) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose.CompareAndSwap(true, false) {
		c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestF2_LostAnswerIsUnknown checks that the outcome after a lost answer is
// unknown. The client itself would repeat the request, and a repeated Leave
// finds nothing: the release would be reported as a loss.
//
// Covers: F2.
func TestF2_LostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	var lose atomic.Bool
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return lossy{raw, &lose}, nil
	}})
	defer c.Close()
	d, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ticket := func(n int) *driver.Ticket {
		return &driver.Ticket{ID: fmt.Sprint("4f2b9d0e-8a4e-4c0a-9d3a-0f5d6c7b8a90:", n), Name: "n", Units: 1, Limit: 1, TTL: 30 * time.Second}
	}
	known := ticket(1) // from here on the server knows the scripts
	if _, err := d.Join(t.Context(), known, true); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Leave(t.Context(), []driver.Ref{{Ticket: known, State: driver.Held}}); err != nil {
		t.Fatal(err)
	}
	k := ticket(2)
	p, err := d.Join(t.Context(), k, true)
	if err != nil || p.State != driver.Held {
		t.Fatalf("%+v, %v", p, err)
	}
	refs := []driver.Ref{{Ticket: k, State: driver.Held}}
	lose.Store(true)
	ps, err := d.Leave(t.Context(), refs)
	if lose.Load() {
		t.Fatal("no answer was lost")
	}
	if err != nil || ps[0].Err == nil || driver.ClassOf(ps[0].Err) != driver.Unknown {
		t.Errorf("the answer was lost: %+v, %v", ps, err)
	}
	if ps, err = d.Leave(t.Context(), refs); err != nil || ps[0].Err != nil || ps[0].State != driver.Gone {
		t.Errorf("again: %+v, %v", ps, err)
	}
}
