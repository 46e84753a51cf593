package mysqllock

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF130_RenewalsInADeepQueueReadNoQueue checks how many index entries the server reads
// for renewals of a client's waiters deep in a queue, alone and beside tickets of other
// queues: not those of the others in it.
func TestF130_RenewalsInADeepQueueReadNoQueue(t *testing.T) {
	t.Parallel()
	const depth, each = 400, 8 // the places before them are not counted there
	d := openOn(t, servers.SharedMariaDB(t).URL("holdfast", own()+"&max_conns=1"))
	d.db.tables.SweepLock.Lock()
	defer d.db.tables.SweepLock.Unlock()
	ctx := context.Background()
	long := func(id int, name string) *driver.Ticket {
		t := sqlcases.Ticket(id, name)
		t.TTL = time.Hour
		return t
	}
	mustJoin(t, d, long(0, "deep"), driver.Held)
	var waiting []*driver.Ticket
	for i := 1; i <= depth; i++ {
		waiting = append(waiting, long(i, "deep"))
		mustJoin(t, d, waiting[i-1], driver.Waiting)
	}
	other := long(depth+1, "other")
	mustJoin(t, d, other, driver.Held)
	read := func() (sum int64) {
		var name string
		for _, what := range []string{"Handler_read_next", "Handler_read_prev"} {
			var n int64
			if err := d.db.queryRow(ctx, "SHOW SESSION STATUS LIKE '"+what+"'", nil, &name, &n); err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	for name, refs := range map[string][]driver.Ref{"alone": nil, "beside another queue": {{Ticket: other, State: driver.Held}}} {
		for _, w := range waiting[depth-each:] {
			refs = append(refs, driver.Ref{Ticket: w, State: driver.Waiting})
		}
		before := read()
		answers, err := d.Renew(ctx, refs)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if a.Err != nil || a.State != refs[i].State || a.State == driver.Waiting && a.Ahead < depth-each {
				t.Errorf("%s: ticket %d: %+v", name, i, a)
			}
		}
		n := read() - before
		t.Logf("%s: %d entries were read for %d tickets", name, n, len(refs))
		if n >= depth {
			t.Errorf("%s: %d entries were read, want fewer than the %d of the queue", name, n, depth)
		}
	}
}
