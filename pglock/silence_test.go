package pglock

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF115_SilenceLeavesOtherRequests checks that a request under way keeps its
// connection if another connection was silent and the idle ones are closed.
func TestF115_SilenceLeavesOtherRequests(t *testing.T) {
	t.Parallel()
	d := openOn(t, servers.SharedPostgres(t).URL("postgres", own()))
	answer := ""
	if err := d.db.inConn(t.Context(), func(c *pooledConn) error {
		d.db.afterSilence()
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
