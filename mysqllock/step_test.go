package mysqllock

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/stepcut"
)

// Every round trip of every request is cut. Asked again, the request leaves the
// line as if it had been asked once.
//
// Covers: F1, F2, F4.
func TestF97_EveryStepCut(t *testing.T) {
	t.Parallel()
	s := backends.SharedMariaDB(t)
	prefix := own()
	stepcut.Run(t, stepcut.Server{
		Addr:     fmt.Sprintf("127.0.0.1:%d", s.Port),
		Protocol: stepcut.MySQL,
		Open: func(addr string) driver.Driver {
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
