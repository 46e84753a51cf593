package redislock

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF115_CancelledCallKeepsConnections checks that a call which its
// caller ends early takes no connection from concurrent calls, however long
// the way to the server is.
//
// Covers: F115 on redis.
func TestF115_CancelledCallKeepsConnections(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	p := faultproxy.At(t, "127.0.0.1:0", s.Addr())
	d := openAt(t, Open, "redis://"+p.Addr()+"?prefix=cancelled")
	if _, err := d.Inspect(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	p.Delay(150 * time.Millisecond)
	answered := make(chan error, 1)
	go func() {
		_, err := d.Inspect(t.Context(), "a")
		answered <- err
	}()
	for range 20 { // callers that cancel while the answer is under way
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Millisecond, cancel)
		if _, err := d.Inspect(ctx, "b"); err == nil {
			t.Error("Inspect is answered before its answer can have come")
		}
		cancel()
	}
	if err := <-answered; err != nil {
		t.Errorf("Inspect beside calls that were cancelled: %v", err)
	}
}
