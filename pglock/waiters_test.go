package pglock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestWaitersForAConnectionKeepThePool checks that requests which time out while the pool
// makes its connection do not have it thrown away, and that those which got it too late do
// not end it: otherwise a server that is slow to accept connections is asked for new ones
// for ever, and none is used.
func TestWaitersForAConnectionKeepThePool(t *testing.T) {
	config, o, err := parseURL(servers.SharedPostgres(t).URL("postgres", own()+"&pool_max_conns=1"))
	if err != nil {
		t.Fatal(err)
	}
	var slow atomic.Bool
	var made atomic.Int32
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if slow.Load() {
			made.Add(1)
			time.Sleep(time.Second)
		}
		return nil
	}
	d, err := open(t.Context(), config, o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	slow.Store(true)
	d.db.pool.Reset()
	var answered atomic.Int32
	var all sync.WaitGroup
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			if _, err := d.Inspect(ctx, "a"); err == nil {
				answered.Add(1)
			}
		})
	}
	all.Wait()
	if answered.Load() < 10 {
		t.Errorf("%d connections were made, and %d of some 300 requests answered", made.Load(), answered.Load())
	}
	t.Logf("%d connections made, %d requests answered", made.Load(), answered.Load())
}
