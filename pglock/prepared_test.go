package pglock

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// Everything that is worth it is prepared, with the types that arguments are
// sent in; and a connection that somebody makes forget is found out, once.
func TestPrepared(t *testing.T) {
	ctx := context.Background()
	d := openOn(t, backends.SharedPostgres(t).URL("postgres", own()+"&pool_max_conns=1"))
	d.r.Sweeper.Lock() // a sweep would find out first
	defer d.r.Sweeper.Unlock()
	a := ticket(1, "n")
	mustJoin(t, d, a, driver.Held)
	var number, odd int
	err := d.pool.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE NOT parameter_types <@ ARRAY['bigint', 'bytea']::regtype[]) "+
		"FROM pg_prepared_statements WHERE name ~ '^holdfast_[0-9]'", pgx.QueryExecModeExec).Scan(&number, &odd)
	if err != nil || number != len(d.names) || odd != 0 {
		t.Errorf("%d of %d prepared, %d of other types, %v", number, len(d.names), odd, err)
	}
	if _, err := d.pool.Exec(ctx, "DEALLOCATE ALL", pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	_, err = d.Join(ctx, ticket(2, "m"), true)
	if driver.ClassOf(err) != driver.NotDone {
		t.Errorf("without what was prepared: class %v: %v", driver.ClassOf(err), err)
	}
	mustJoin(t, d, ticket(2, "m"), driver.Held)
	mustLeave(t, d, a)
}

// Behind a pooler that shares connections, and in a pool that was given,
// nothing is prepared.
func TestNotPrepared(t *testing.T) {
	s := backends.SharedPostgres(t)
	b := backends.PgBouncer(t, s, "transaction", 1)
	d := openOn(t, b.URL("postgres", own()+fmt.Sprintf("&listen=127.0.0.1:%d", s.Port)))
	mustJoin(t, d, ticket(1, "n"), driver.Held)
	mustJoin(t, d, ticket(2, "m"), driver.Held)
	if !d.plain.Load() {
		t.Error("it prepares through a pooler")
	}
	direct := openOn(t, s.URL("postgres", own()))
	given, err := New(direct.pool, &direct.opt)
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	mustJoin(t, given, ticket(1, "n"), driver.Held)
	c, err := direct.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if ready, err := given.prepare(t.Context(), c.Conn().PgConn()); ready || err != nil {
		t.Errorf("in a pool that was given: %v, %v", ready, err)
	}
}
