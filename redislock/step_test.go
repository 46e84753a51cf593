package redislock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestEveryStepCut cuts every message of every request.
//
// Covers: F1, F2, F4.
func TestEveryStepCut(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	faultproxy.EveryStep(t, faultproxy.Subject{Target: s.Addr(), TTL: time.Minute, Open: func(t testing.TB, addr string) driver.Driver {
		d, err := Open(t.Context(), "redis://"+addr+"?prefix=cut")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}})
}

// TestF115_HalfOpenLosesNoHold checks that no hold is lost when connections
// fall silent.
//
// Covers: F115 on redis.
func TestF115_HalfOpenLosesNoHold(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	// From 15 s on, a call's time limit is the client's own, and not a third
	// of its TTL.
	ttls := []time.Duration{3 * time.Second, 5 * time.Second, 16 * time.Second}
	faultproxy.HalfOpen(t, faultproxy.Subject{Target: s.Addr(), Open: func(t testing.TB, addr string) driver.Driver {
		return openAt(t, Open, "redis://"+addr+"?prefix=half")
	}}, ttls...)
}

// TestF115_LockBesideSilentConnections silences all connections of a client, and serves
// new ones: its next Lock finds that out before it has to give the store up, in each
// state of the connections.
//
// Covers: F115 on redis.
func TestF115_LockBesideSilentConnections(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	for _, ttl := range []time.Duration{3 * time.Second, 9 * time.Second, 30 * time.Second} {
		for what, locks := range map[string][2]int{"a new client": {1, 1}, "a lone connection": {1, 600}, "a crowd": {16, 20}} {
			t.Run(fmt.Sprintf("%v, %s", ttl, what), func(t *testing.T) {
				t.Parallel()
				p := faultproxy.At(t, "127.0.0.1:0", s.Addr())
				c, err := holdfast.New(openAt(t, Open, "redis://"+p.Addr()+"?prefix=beside"+p.Addr()), holdfast.WithTTL(ttl))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				var group sync.WaitGroup
				for i := range locks[0] {
					group.Go(func() {
						for range locks[1] {
							if h, err := c.Mutex(fmt.Sprint(i)).Lock(t.Context()); err != nil || h.Unlock() != nil {
								t.Errorf("a lock: %v", err)
							}
						}
					})
				}
				group.Wait()
				for tries := 4; ; tries-- { // again, if the machine was too busy to find out in time
					p.SilenceOpen()
					begun := time.Now()
					h, err := c.Mutex("another").Lock(t.Context())
					took := time.Since(begun)
					t.Logf("after %v: %v", took.Round(time.Millisecond), err)
					if err == nil {
						err = h.Unlock()
					}
					if err == nil && took < 1400*time.Millisecond {
						return
					}
					if tries == 1 {
						t.Fatalf("after %v: %v", took, err)
					}
				}
			})
		}
	}
}

// TestF123_SilentWhileOpened checks that Open ends in time when the server falls
// silent after any of its answers.
//
// Covers: F123 on redis.
func TestF123_SilentWhileOpened(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	faultproxy.Opening(t, faultproxy.Subject{Target: s.Addr()}, 4, func(ctx context.Context, addr string) (driver.Driver, error) {
		return opened(Open(ctx, "redis://"+addr))
	})
}
