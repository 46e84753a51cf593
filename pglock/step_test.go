package pglock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF1_EveryStepCut cuts every round trip of every request, and lets an
// operator kill its connection.
//
// Covers: F1, F2, F4, F97.
func TestF1_EveryStepCut(t *testing.T) {
	t.Parallel()
	s := servers.SharedPostgres(t)
	prefix := own()
	faultproxy.EveryStep(t, faultproxy.Subject{
		Target: fmt.Sprintf("127.0.0.1:%d", s.Port),
		TTL:    time.Minute, FastSteps: true,
		Protocol: faultproxy.Postgres,
		Open: func(t testing.TB, addr string) driver.Driver {
			return openOn(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&pool_max_conns=1&%s", addr, prefix))
		},
		Kill: func(pid uint32) {
			if err := s.EndConnection(pid); err != nil {
				t.Error(err) // t.Fatal is not for the proxy's goroutine
			}
		},
	})
}

// TestF115_HalfOpen checks that no hold is lost when connections fall silent,
// as long as new ones are served.
//
// Covers: F115.
func TestF115_HalfOpen(t *testing.T) {
	t.Parallel()
	prefix := own()
	faultproxy.HalfOpen(t, faultproxy.Subject{
		Target: fmt.Sprintf("127.0.0.1:%d", servers.SharedPostgres(t).Port),
		Open: func(t testing.TB, addr string) driver.Driver {
			return openOn(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&%s", addr, prefix))
		},
	}, 2*time.Second)
}

// TestF123_SilentAfterLogin checks that Open ends in time when the server, or a pooler
// in front of it, consents to the connection and then says nothing.
//
// Covers: F123.
func TestF123_SilentAfterLogin(t *testing.T) {
	t.Parallel()
	faultproxy.Opening(t, faultproxy.Subject{
		Target:   fmt.Sprintf("127.0.0.1:%d", servers.SharedPostgres(t).Port),
		Protocol: faultproxy.Postgres,
	}, 1, func(ctx context.Context, addr string) (driver.Driver, error) {
		return Open(ctx, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&%s", addr, own()))
	})
}
