package mysqllock

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF115_SilenceLeavesOtherRequests checks that a request under way keeps its
// connection if another connection was silent and the idle ones are closed.
func TestF115_SilenceLeavesOtherRequests(t *testing.T) {
	t.Parallel()
	d := openOn(t, servers.SharedMariaDB(t).URL("holdfast", own()))
	answer := ""
	if err := d.db.inConn(t.Context(), func(c *conn) error {
		d.db.afterSilence()
		return c.QueryRowContext(t.Context(), "SELECT 'answer'").Scan(&answer)
	}); err != nil || answer != "answer" {
		t.Errorf("a request under way while another connection was given up: %q, %v", answer, err)
	}
}
