package pglock

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestFrequentStatementsArePrepared checks that all frequent statements are
// prepared, with the types in which arguments are sent, and that a connection
// whose statements somebody discarded is noticed once.
func TestFrequentStatementsArePrepared(t *testing.T) {
	ctx := context.Background()
	d := openOn(t, servers.SharedPostgres(t).URL("postgres", own()+"&pool_max_conns=1"))
	d.db.tables.SweepLock.Lock() // a sweep would notice first
	defer d.db.tables.SweepLock.Unlock()
	a := ticket(1, "n")
	mustJoin(t, d, a, driver.Held)
	var number, odd int
	err := d.db.pool.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE NOT parameter_types <@ ARRAY['bigint', 'bytea']::regtype[]) "+
		"FROM pg_prepared_statements WHERE name LIKE 'holdfast\\_%' AND statement NOT LIKE '%set_config%'", pgx.QueryExecModeExec).Scan(&number, &odd)
	if err != nil || number != len(d.db.stmtNames) || odd != 0 {
		t.Errorf("%d of %d prepared, %d of other types, %v", number, len(d.db.stmtNames), odd, err)
	}
	if _, err := d.db.pool.Exec(ctx, "DEALLOCATE ALL", pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	_, err = d.Join(ctx, ticket(2, "m"), true)
	if driver.ClassOf(err) != driver.NotDone {
		t.Errorf("without what was prepared: class %v: %v", driver.ClassOf(err), err)
	}
	mustJoin(t, d, ticket(2, "m"), driver.Held)
	mustLeave(t, d, a)
}

// TestPreparedNamesFollowTheirTexts checks that statements of another version
// have other names: one server connection may have both.
func TestPreparedNamesFollowTheirTexts(t *testing.T) {
	one, other := &sqlqueue.Text{SQL: "SELECT 1"}, &sqlqueue.Text{SQL: "SELECT 2"}
	names, again := namesOf([]*sqlqueue.Text{one, other}), namesOf([]*sqlqueue.Text{other})
	if names[one] == names[other] || names[other] != again[other] || len(names[one]) > 63 {
		t.Errorf("%v and %v", names, again)
	}
}

// TestNothingPreparedInSharedConnections checks that nothing is prepared behind
// a pooler that shares connections, nor in a pool that was passed to New.
func TestNothingPreparedInSharedConnections(t *testing.T) {
	s := servers.SharedPostgres(t)
	b := servers.PgBouncer(t, s, "transaction", 1)
	d := openOn(t, b.URL("postgres", own()+fmt.Sprintf("&listen=127.0.0.1:%d", s.Port)))
	mustJoin(t, d, ticket(1, "n"), driver.Held)
	mustJoin(t, d, ticket(2, "m"), driver.Held)
	if !d.db.textOnly.Load() {
		t.Error("it prepares through a pooler")
	}
	direct := openOn(t, s.URL("postgres", own()))
	given, err := New(direct.db.pool, &direct.db.opt)
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	mustJoin(t, given, ticket(1, "n"), driver.Held)
	c, err := direct.db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if ready, err := given.db.prepare(t.Context(), c.Conn().PgConn()); ready || err != nil {
		t.Errorf("in a pool that was given: %v, %v", ready, err)
	}
}
