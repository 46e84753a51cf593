package mysqllock

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF115_SilenceLeavesOtherRequests checks that a request under way keeps its
// connection if another connection was silent and the idle ones are closed.
func TestF115_SilenceLeavesOtherRequests(t *testing.T) {
	t.Parallel()
	d := openOn(t, servers.SharedMariaDB(t).URL("holdfast", own()))
	answer := ""
	if err := d.db.inConn(t.Context(), func(c *conn) error {
		d.db.afterSilence(sqlqueue.InstantOf(time.Now()))
		return c.QueryRowContext(t.Context(), "SELECT 'answer'").Scan(&answer)
	}); err != nil || answer != "answer" {
		t.Errorf("a request under way while another connection was given up: %q, %v", answer, err)
	}
}

// TestF115_OldConnectionsAreNotUsedAfterASilence checks which idle connections are used
// after a request that was not answered.
func TestF115_OldConnectionsAreNotUsedAfterASilence(t *testing.T) {
	t.Parallel()
	d := openOn(t, servers.SharedMariaDB(t).URL("holdfast", own()))
	sqlcases.OldConnections(t, func(f func(int64)) error {
		return d.db.inConn(t.Context(), func(c *conn) error {
			var id int64
			if err := c.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
				return err
			}
			f(id)
			return nil
		})
	}, d.db.afterSilence)
}
