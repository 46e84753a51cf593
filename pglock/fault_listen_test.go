package pglock

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestF124_LockWithoutListener takes away the connection for LISTEN: its
// address refuses connections, or is silent. It checks that locks still work,
// that waiters recheck often, and that pushes flow once there is a connection.
func TestF124_LockWithoutListener(t *testing.T) {
	t.Parallel()
	server := servers.SharedPostgres(t)
	for what, dial := range map[string]func(ctx context.Context) error{
		"refused": func(context.Context) error { return errors.New("refused") },
		"silent":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := server.URL("postgres", own())
			var there atomic.Bool
			listen, err := pgx.ParseConfig(server.URL("postgres", ""))
			config, o, err2 := parseURL(url)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			listen.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if !there.Load() {
					return nil, dial(ctx)
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			o.Listen = listen
			e, err := open(context.Background(), config, o)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			d := openOn(t, url)
			told := make(chan string, 10)
			start := time.Now()
			watch := func() error { return e.Watch(t.Context(), func(id string, _ driver.Status) { told <- id }) }
			if err := watch(); err == nil || driver.ClassOf(err) == driver.Refused {
				t.Errorf("Watch says %v, and nobody learns that pushes are missing", err)
			}
			if took := time.Since(start); took > 2*driver.OpenLimit { // on a busy machine
				t.Errorf("Watch took %v", took)
			}
			name := "n" + what
			a, b := ticket(1, name), ticket(2, name)
			mustJoin(t, d, a, driver.Held)
			if p := mustJoin(t, e, b, driver.Waiting); p.Recheck > sqlqueue.PaceLast {
				t.Errorf("recheck after %v", p.Recheck)
			}
			there.Store(true)
			if err := watch(); err != nil {
				t.Fatal(err)
			}
			if !e.db.tables.PushesArrive.Load() {
				t.Error("it watches and hears nothing")
			}
			mustLeave(t, d, a)
			mustLeave(t, e, b)
			sqlcases.HandsOff(t, d, e, told, map[string]int{"refused": 10, "silent": 20}[what])
		})
	}
}
