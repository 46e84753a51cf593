package faultproxy_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/memlock"
)

// far is a driver of a store in this process that pays for each request with
// round trips to a server.
type far struct {
	driver.Driver
	trips func(refs int) int

	mu sync.Mutex
	c  net.Conn
	r  *bufio.Reader
}

// Renew implements [driver.Driver].
func (f *far) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range f.trips(len(refs)) {
		if _, err := fmt.Fprintln(f.c, "renew"); err != nil {
			return nil, err
		}
		if _, err := f.r.ReadString('\n'); err != nil {
			return nil, err
		}
	}
	return f.Driver.Renew(ctx, refs)
}

// recorded writes failures down.
type recorded struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorded) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorded) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorded) FailNow() { runtime.Goexit() }

// latency returns what [Latency] says of a driver that takes so many round
// trips to renew so many places.
func latency(t *testing.T, ttl time.Duration, trips func(refs int) int) []string {
	s := serve(t)
	store := memlock.NewStore()
	r := &recorded{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		faultproxy.Latency(r, faultproxy.Distant{
			Targets: []string{s.l.Addr().String()}, Many: 100, TTL: ttl,
			Open: func(_ testing.TB, addrs []string) driver.Driver {
				c := dial(t, addrs[0])
				return &far{Driver: memlock.New(store), trips: trips, c: c.c, r: c.r}
			},
		})
	}()
	<-done
	return r.failures
}

// TestF121_LatencyFailsDriverThatPaysByTicket: a driver that pays by the ticket fails, and one that pays by
// the request passes.
func TestF121_LatencyFailsDriverThatPaysByTicket(t *testing.T) {
	for name, trips := range map[string]func(int) int{
		"one for each request": func(int) int { return 1 },
		"two for each ticket":  func(refs int) int { return 2 * refs },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failures := latency(t, 1500*time.Millisecond, trips)
			t.Logf("%.400s", strings.Join(failures, "; "))
			if broken := trips(2) > trips(1); broken != (len(failures) > 0) {
				t.Errorf("broken: %v; failures: %q", broken, failures)
			}
		})
	}
}
