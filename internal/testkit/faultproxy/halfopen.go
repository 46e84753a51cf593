package faultproxy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// SilenceOpen silences the open connections, in both directions, and serves new
// ones, like a firewall that has forgotten its connections.
func (p *Proxy) SilenceOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.links {
		k.dropping.Store(true)
	}
}

// HalfOpen silences a client's connections while it holds locks of these TTLs,
// each alone and then together with other work, and serves new connections. No
// hold is lost: the driver gives up an unanswered request in time for another
// try.
//
// It fails a driver that waits for an answer longer than its holds last.
func HalfOpen(t *testing.T, s Subject, ttls ...time.Duration) {
	for _, ttl := range ttls {
		for _, crowd := range []int{1, 8} { // a driver that was never alone takes another path
			t.Run(fmt.Sprintf("%v by %d", ttl, crowd), func(t *testing.T) {
				t.Parallel()
				s.halfOpen(t, ttl, crowd)
			})
		}
	}
}

func (s *Subject) halfOpen(t *testing.T, ttl time.Duration, crowd int) {
	listen := "127.0.0.1:0"
	if s.Listen != nil {
		listen = s.Listen()
	}
	p := At(t, listen, s.Target)
	d := s.Open(t, p.Addr())
	c, err := holdfast.New(unclosed{d}, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+4*ttl)
	defer cancel()
	// Names that are told apart from those of other tests and runs.
	name := func(i int) string {
		n := fmt.Sprintf("half open %v %d %d %s", ttl, crowd, i, p.Addr())
		if s.Named != nil {
			n = s.Named(n)
		}
		return n
	}
	holds := make([]*holdfast.Hold, crowd)
	errs := make(chan error, crowd)
	for i := range crowd {
		go func() {
			h, err := c.Mutex(name(i)).Lock(ctx)
			holds[i] = h
			errs <- err
		}()
	}
	for range crowd {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		p.SilenceOpen()
		timer := time.NewTimer(ttl + ttl/4) // a hold that nobody renews is over by then
		for i, h := range holds {
			select {
			case <-h.Context().Done():
				t.Errorf("round %d: hold %d was lost: %v", round, i, h.Err())
			case <-timer.C:
				timer.Reset(0)
			}
		}
		timer.Stop()
	}
	for i, h := range holds {
		if err := h.Err(); err != nil {
			t.Errorf("hold %d: %v", i, err)
		}
		_ = h.Unlock()
	}
	_ = c.Close()
}

// unclosed is a driver that its test closes.
type unclosed struct{ driver.Driver }

// Close implements [driver.Driver].
func (unclosed) Close() error { return nil }
