package redislock

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
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

// TestF115_GivenUpConnectionRefusesNothing checks that a call whose connection
// another call gives up ends as Unknown: Refused would be final.
//
// Covers: F115 on redis.
func TestF115_GivenUpConnectionRefusesNothing(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	d := openAt(t, Open, "redis://"+s.Addr()+"?prefix=givenup")
	if _, err := d.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Pause(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := d.Identity(ctx)
		answered <- err
	}()
	for d.control.pending.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	d.control.mu.Lock()
	conn := d.control.conn
	d.control.mu.Unlock()
	d.control.drop(conn)
	if err := <-answered; driver.ClassOf(err) != driver.Unknown || err == nil {
		t.Errorf("a call whose connection was given up: %v", err)
	}
	s.Resume(t)
}
