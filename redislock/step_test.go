package redislock

import (
	"context"
	"testing"
	"time"

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
