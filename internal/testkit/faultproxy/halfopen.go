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
// try. A little more than a TTL later at most, the client locks other names again,
// for which the driver may have other connections than for renewals.
//
// It fails a driver that waits for an answer longer than its holds last, and one
// that keeps a silent connection because the requests on it are no renewals.
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

// halfOpen tries again after a loss if this process stood still meanwhile: then
// the renewals had too little time.
func (s *Subject) halfOpen(t *testing.T, ttl time.Duration, crowd int) {
	listen := "127.0.0.1:0"
	if s.Listen != nil {
		listen = s.Listen()
	}
	p := At(t, listen, s.Target)
	for tries := 4; ; tries-- {
		lost, paused := s.silenceTwice(t, p, ttl, crowd, tries)
		switch {
		case len(lost) == 0:
			return
		case tries == 1 || paused < ttl/10:
			for _, what := range lost {
				t.Error(what)
			}
			return
		}
		t.Logf("once more, because the process stood still for %v: %q", paused, lost)
	}
}

// pauses measures for how long this process gets no processor, until the
// returned function is called, which returns the longest of these times.
func pauses() (longest func() time.Duration) {
	const step = 5 * time.Millisecond
	stop, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-stop:
				most <- longest
				return
			case <-time.After(step):
				longest = max(longest, time.Since(last)-step)
			}
		}
	}()
	return func() time.Duration { close(stop); return <-most }
}

// silenceTwice silences the connections of a new client twice. It returns which
// of its holds were lost, and for how long this process stood still meanwhile.
func (s *Subject) silenceTwice(t *testing.T, p *Proxy, ttl time.Duration, crowd, try int) (lost []string, paused time.Duration) {
	longest := pauses()
	defer func() { paused = longest() }()
	d := s.Open(t, p.Addr())
	c, err := holdfast.New(unclosed{d}, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+4*ttl)
	defer cancel()
	// Names that are told apart from those of other tests and runs.
	name := func(i int) string {
		n := fmt.Sprintf("half open %v %d %d.%d %s", ttl, crowd, try, i, p.Addr())
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
		locked := make(chan error, 1)
		if s.OneByOne {
			locked <- nil
		} else {
			go func() { locked <- lockAgain(ctx, c.Mutex(name(crowd+round)), ttl+ttl/4) }()
		}
		timer := time.NewTimer(ttl + ttl/4) // a hold that nobody renews is over by then
		for i, h := range holds {
			select {
			case <-h.Context().Done():
				lost = append(lost, fmt.Sprintf("round %d: hold %d was lost: %v", round, i, h.Err()))
			case <-timer.C:
				timer.Reset(0)
			}
		}
		timer.Stop()
		if err := <-locked; err != nil {
			lost = append(lost, fmt.Sprintf("round %d: another name: %v", round, err))
		}
	}
	for i, h := range holds {
		if err := h.Err(); err != nil {
			lost = append(lost, fmt.Sprintf("hold %d: %v", i, err))
		}
		_ = h.Unlock()
	}
	return lost, 0
}

// lockAgain locks a free name and leaves it held. A Lock may give the store up; then it
// tries again.
func lockAgain(ctx context.Context, m *holdfast.Mutex, within time.Duration) error {
	begun, failed := time.Now(), error(nil)
	for {
		_, err := m.Lock(ctx)
		took := time.Since(begun)
		switch {
		case err != nil && took < within:
			failed = err
			time.Sleep(10 * time.Millisecond)
		case err != nil:
			return err
		case took > within:
			return fmt.Errorf("locked after %v (before that: %v)", took.Round(time.Millisecond), failed)
		default:
			return nil
		}
	}
}

// unclosed is a driver that its test closes.
type unclosed struct{ driver.Driver }

// Close implements [driver.Driver].
func (unclosed) Close() error { return nil }
