package etcdlock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// BenchmarkTryBesideWaiters measures a TryLock of a lock that is held and has many
// waiters, and tells the quickest, which other work of the machine changes least.
// docs/stores/etcd.md has the figures.
func BenchmarkTryBesideWaiters(b *testing.B) {
	s := servers.SharedEtcd(b, servers.EtcdNewest)
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, err := etcdlock.New(client(b, s, nil), &etcdlock.Options{Prefix: fmt.Sprintf("beside%d/", n)})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			for i := range n + 1 {
				tk := &driver.Ticket{ID: fmt.Sprintf("beside:%d", i), Name: "n", Units: 1, Limit: 1, TTL: 10 * time.Minute}
				if _, err := d.Join(ctx, tk, true); err != nil {
					b.Fatal(err)
				}
			}
			m := locksOn(b, d).Mutex("n")
			best := time.Hour
			for b.Loop() {
				began := time.Now()
				if _, err := m.TryLock(ctx); !errors.Is(err, holdfast.ErrHeld) {
					b.Fatalf("TryLock: %v", err)
				}
				best = min(best, time.Since(began))
			}
			b.ReportMetric(float64(best.Microseconds())/1e3, "ms-best")
		})
	}
}
