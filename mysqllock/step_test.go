package mysqllock

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
	s := backends.SharedMariaDB(t)
	prefix := own()
	cuts.EveryStep(t, cuts.Subject{
		Target: fmt.Sprintf("127.0.0.1:%d", s.Port),
		TTL:    time.Minute, Quick: true,
		Protocol: cuts.MySQL,
		Open: func(t testing.TB, addr string) driver.Driver {
			return openOn(t, fmt.Sprintf("mysql://holdfast:%s@%s/locks?max_conns=1&%s", "s3cret%2Fpass", addr, prefix))
		},
		Kill: func(id uint32) {
			s.Exec(t, fmt.Sprintf("KILL %d", id))
			for s.Value(t, "SELECT count(*) FROM information_schema.processlist WHERE id = ?", id) > 0 {
				time.Sleep(time.Millisecond)
			}
		},
	})
}
