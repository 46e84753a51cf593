package server

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/rueidisclient"
)

// TestF115_GivenUpConnectionRefusesNothing checks that a call whose connection
// another call gives up ends as Unknown: Refused would be final.
//
// Covers: F115 on redis.
func TestF115_GivenUpConnectionRefusesNothing(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	life, end := context.WithCancel(context.Background())
	lib, err := rueidisclient.Dial(life, end, rueidisclient.Options{Addr: s.Addr(), DialTimeout: 5 * time.Second, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), Setup{Settings: Settings{Prefix: "givenup"}, Lib: lib})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
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
