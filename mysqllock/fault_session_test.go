package mysqllock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF67_LastToken checks queues that reach the last token.
func TestF67_LastToken(t *testing.T) {
	sqlcases.LastToken(t, openOn(t, servers.SharedMariaDB(t).URL("holdfast", own())))
}

// TestF103_NamedLockWithoutAnswer kills, again and again, the statement in
// which a client's wake-up connection sleeps, so that GET_LOCK answers neither
// yes nor no. No ticket holds by such a lock, so the only possible damage is a
// waiter that is not woken. The test checks that the waiter is woken.
func TestF103_NamedLockWithoutAnswer(t *testing.T) {
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	d, e := openOn(t, url), openOn(t, url)
	woken := make(chan string, 100)
	if err := e.Watch(context.Background(), func(id string, _ driver.Status) {
		if id != "" {
			woken <- id
		}
	}); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for i := range 5 {
		a, b := ticket(2*i, "n"), ticket(2*i+1, "n")
		mustJoin(t, d, a, driver.Held)
		mustJoin(t, e, b, driver.Waiting)
		if at := s.Value(t, fmt.Sprintf("SELECT COALESCE(is_used_lock('%s'), 0)", e.db.tables.Name)); at != 0 {
			s.Exec(t, fmt.Sprintf("KILL QUERY %d", at))
			killed++
		}
		mustLeave(t, d, a)
		select {
		case id := <-woken:
			if id != b.ID {
				t.Errorf("told %q, want %q", id, b.ID)
			}
		case <-time.After(200 * time.Millisecond): // not yet: the waiter renews
			if p := mustRenew(t, e, b); p.State != driver.Held {
				t.Errorf("the waiter is %v", p.State)
			}
		}
		mustLeave(t, e, b)
	}
	if killed == 0 {
		t.Error("no statement was killed")
	}
}
