package pglock

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
	d := openOn(t, servers.SharedPostgres(t).URL("postgres", own()))
	answer := ""
	if err := d.db.inConn(t.Context(), func(c *pooledConn) error {
		d.db.afterSilence(sqlqueue.InstantOf(time.Now()))
		r := c.ExecParams(t.Context(), "SELECT 'answer'", nil, nil, nil, nil)
		for r.NextRow() {
			answer = string(r.Values()[0])
		}
		_, err := r.Close()
		return err
	}); err != nil || answer != "answer" {
		t.Errorf("a request under way while another connection was given up: %q, %v", answer, err)
	}
}

// TestF115_OldConnectionsAreNotUsedAfterASilence checks which idle connections are used
// after a request that was not answered.
func TestF115_OldConnectionsAreNotUsedAfterASilence(t *testing.T) {
	t.Parallel()
	d := openOn(t, servers.SharedPostgres(t).URL("postgres", own()))
	sqlcases.OldConnections(t, func(f func(int64)) error {
		return d.db.inConn(t.Context(), func(c *pooledConn) error {
			f(int64(c.PID()))
			return nil
		})
	}, d.db.afterSilence)
}
