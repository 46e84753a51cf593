package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// closed reports whether a channel is closed.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// TestPollerEndsWaitWithItsContext checks that a wait ends within a PollEvery of
// its context's end, by time or by cancellation, and that no other wait does.
func TestPollerEndsWaitWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Poller
		timed, stop := context.WithTimeout(t.Context(), 90*time.Millisecond)
		defer stop()
		owned, cancel := context.WithCancel(t.Context())
		a, b, c := o.Begin(timed), o.Begin(owned), o.Begin(t.Context())
		time.Sleep(70 * time.Millisecond)
		cancel()
		if closed(a.Done()) || closed(b.Done()) || closed(c.Done()) {
			t.Fatal("a wait ended before a glance")
		}
		time.Sleep(PollEvery)
		synctest.Wait()
		if !closed(b.Done()) || b.Err() == nil {
			t.Error("the wait of a caller that gave up goes on")
		}
		time.Sleep(PollEvery)
		synctest.Wait()
		if !closed(a.Done()) || closed(c.Done()) {
			t.Error("a wait goes on after its time, or one ended that has none")
		}
		for _, b := range []*PollContext{a, b, c} {
			o.End(b)
		}
		if len(o.active) != 0 || len(o.spare) != 1 || o.spare[0] != c {
			t.Errorf("%d under way, %d spare: those that ended must not be used again", len(o.active), len(o.spare))
		}
		time.Sleep(2 * PollEvery)
		synctest.Wait()
		if o.armed {
			t.Error("the timer does not rest")
		}
	})
}

// gate is a context whose Err waits until the test lets it go on, and then
// returns that the context has ended.
type gate struct {
	context.Context
	asked, open chan struct{}
}

func (g gate) Err() error {
	close(g.asked)
	<-g.open
	return context.Canceled
}

// TestPollerSparesTheNextRequest checks that a context which is found ended
// after its request got its answer does not end the wait of the next request.
func TestPollerSparesTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Poller
		g := gate{t.Context(), make(chan struct{}), make(chan struct{})}
		b := o.Begin(g)
		<-g.asked // while the context is asked, no request is held up
		o.End(b)
		next := o.Begin(t.Context())
		if next != b {
			t.Fatal("the spare one was not used")
		}
		close(g.open)
		synctest.Wait()
		time.Sleep(2 * PollEvery)
		synctest.Wait()
		if closed(next.Done()) {
			t.Error("the end of one request ended the next")
		}
		o.End(next)
	})
}

// TestPollCtxOutlivesItsRequest checks that work which a client has begun with
// a request's context may ask the context after the request has its answer,
// while other requests come and go. The race detector finds a breach.
func TestPollCtxOutlivesItsRequest(t *testing.T) {
	var o Poller
	b := o.Begin(t.Context())
	answered, asked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(asked)
		<-answered
		for range 100 {
			if b.Err() != nil || b.Value("a") != nil {
				t.Error("it is the context of nobody, or of one that goes on")
			}
		}
	}()
	close(answered)
	o.End(b)
	for range 100 {
		o.End(o.Begin(t.Context()))
	}
	<-asked
}

// TestPollerAllocatesNothing checks that a request allocates nothing once there
// was one.
func TestPollerAllocatesNothing(t *testing.T) {
	var o Poller
	ctx := t.Context()
	if got := testing.AllocsPerRun(200, func() {
		a, b := o.Begin(ctx), o.Begin(ctx)
		o.End(a)
		o.End(b)
	}); got > 0 {
		t.Errorf("%v allocations", got)
	}
}
