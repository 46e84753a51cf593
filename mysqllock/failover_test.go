package mysqllock

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF96_FailoverKeepsReplicatedHolds checks that a replica is reported as one
// that takes no writes. After a failover, replicated holds continue, and later
// holders get greater tokens.
func TestF96_FailoverKeepsReplicatedHolds(t *testing.T) {
	t.Parallel()
	s := servers.MariaDB(t, servers.MariaDBOptions{Settings: servers.Logged})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r := s.Replica(t)
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX ON locks.* TO app@'%'")
	at := sqlcases.NewRelay(t, s.Port, nil)
	url := func(addr string) string {
		return fmt.Sprintf("mysql://app:%s@%s/locks", "s3cret%2Fpass", addr)
	}
	outage := outageOf(t, s, url(at.Addr))
	outage.ServerMoves = true
	outage.Waits = func() bool {
		return r.Value(t, "SELECT count(*) FROM information_schema.tables WHERE table_name = 'holdfast_ticket'") > 0 &&
			r.Value(t, "SELECT count(*) FROM holdfast_ticket") > 0
	}
	outage.Held = func() int64 { return r.Value(t, "SELECT held FROM holdfast_line") }
	outage.Survive(t, func() {
		alone := openOn(t, url(fmt.Sprintf("127.0.0.1:%d", r.Port)))
		_, err := alone.Join(ctx, ticket(1, "n"), true)
		if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "accepts no writes") {
			t.Errorf("a replica says: %v", err)
		}
		findings, err := alone.Check(ctx)
		problem := false
		for _, f := range findings {
			problem = problem || f.Level == driver.Problem && f.Topic == "writes"
		}
		if err != nil || !problem {
			t.Errorf("the doctor on a replica: %+v, %v", findings, err)
		}

		s.Process.Kill() // without a clean shutdown
		r.Promote(t)
		at.Port.Store(int64(r.Port))
	})
}

// TestDiskFull checks that a full disk is reported in the server's words, ends
// no hold, and is over when there is space.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	disk := servers.NewDisk(t, "/locks/holdfast_ticket")
	s := servers.MariaDB(t, servers.MariaDBOptions{Env: disk.Env()})
	d := openOn(t, s.URL("holdfast", ""))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	held := ticket(1, "held")
	mustJoin(t, d, held, driver.Held)
	disk.Fill(t)
	var err error
	n := 2
	for ; err == nil && n < 1000; n++ { // existing pages fill up first
		tk := ticket(n, "held")
		tk.Meta = strings.Repeat("m", 4000)
		_, err = d.Join(ctx, tk, true)
	}
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "full") {
		t.Errorf("after %d tickets: class %v: %v", n, driver.ClassOf(err), err)
	}
	if p := mustRenew(t, d, held); p.State != driver.Held {
		t.Errorf("the hold is %v", p.State)
	}
	disk.Free(t)
	mustJoin(t, d, ticket(n, "held"), driver.Waiting)

	// The same server, with all of its max_connections taken.
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO app@'%'")
	s.Exec(t, "SET GLOBAL max_connections = 10")
	db := poolOf(t, s.URL("app", ""), nil)
	var taken []io.Closer
	for {
		c, err := db.Conn(ctx)
		if err != nil {
			break
		}
		taken = append(taken, c)
	}
	_, err = Open(ctx, s.URL("app", ""))
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(fmt.Sprint(err), "the server has too many clients") {
		t.Errorf("beside %d connections: class %v: %v", len(taken), driver.ClassOf(err), err)
	}
	for _, c := range taken {
		_ = c.Close()
	}
	if p := mustRenew(t, d, held); p.State != driver.Held {
		t.Errorf("the hold is %v", p.State)
	}
}
