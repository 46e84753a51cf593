package mysqllock

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
	s := servers.SharedMariaDB(t)
	prefix := own()
	faultproxy.EveryStep(t, faultproxy.Subject{
		Target: fmt.Sprintf("127.0.0.1:%d", s.Port),
		TTL:    time.Minute, FastSteps: true,
		Protocol: faultproxy.MySQL,
		Open: func(t testing.TB, addr string) driver.Driver {
			return openOn(t, fmt.Sprintf("mysql://holdfast:%s@%s/locks?max_conns=1&%s", "s3cret%2Fpass", addr, prefix))
		},
		Kill: func(id uint32) {
			if err := s.EndConnection(id); err != nil {
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
		Target: fmt.Sprintf("127.0.0.1:%d", servers.SharedMariaDB(t).Port),
		Open: func(t testing.TB, addr string) driver.Driver {
			return openOn(t, fmt.Sprintf("mysql://holdfast:%s@%s/locks?%s", "s3cret%2Fpass", addr, prefix))
		},
	}, 2*time.Second)
}

// TestF123_SilentAfterLogin checks that Open ends in time when the server, or a proxy
// in front of it, consents to the connection and then says nothing.
//
// Covers: F123.
func TestF123_SilentAfterLogin(t *testing.T) {
	t.Parallel()
	faultproxy.Opening(t, faultproxy.Subject{
		Target:   fmt.Sprintf("127.0.0.1:%d", servers.SharedMariaDB(t).Port),
		Protocol: faultproxy.MySQL,
	}, 2, func(ctx context.Context, addr string) (driver.Driver, error) {
		return Open(ctx, fmt.Sprintf("mysql://holdfast:%s@%s/locks?%s", "s3cret%2Fpass", addr, own()))
	})
}
