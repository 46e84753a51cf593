package pglock

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/cuts"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// Every round trip of every request is cut, and its connection killed by an
// operator.
//
// Covers: F1, F2, F4, F97.
func TestF1_EveryStepCut(t *testing.T) {
	t.Parallel()
	s := backends.SharedPostgres(t)
	prefix := own()
	cuts.EveryStep(t, cuts.Subject{
		Target: fmt.Sprintf("127.0.0.1:%d", s.Port),
		TTL:    time.Minute, Quick: true,
		Protocol: cuts.Postgres,
		Open: func(t testing.TB, addr string) driver.Driver {
			return openOn(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&pool_max_conns=1&%s", addr, prefix))
		},
		Kill: func(pid uint32) {
			s.Exec(t, "SELECT pg_terminate_backend($1::bigint::int)", int64(pid))
			for s.Value(t, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1::bigint", int64(pid)) > 0 {
				time.Sleep(time.Millisecond)
			}
		},
	})
}
