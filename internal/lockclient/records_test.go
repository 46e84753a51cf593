package lockclient

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestRecordsDoNotGrow lets waits end in each way that gives no hold, and holds end in each
// way. Afterwards the driver keeps nothing of their tickets for events to come.
func TestRecordsDoNotGrow(t *testing.T) {
	const ttl = 3 * time.Second
	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 100*time.Millisecond)
	}
	for name, end := range map[string]func(w *world, c, other *holdfast.Client){
		"refused": func(w *world, c, other *holdfast.Client) {
			h, err := other.Semaphore("n", 3, holdfast.WithTTL(ttl)).Acquire(context.Background(), 1)
			if err != nil {
				w.Fatalf("%v", err)
			}
			if _, err := c.Mutex("n", holdfast.WithTTL(ttl)).Lock(context.Background()); err == nil {
				w.Fatalf("a mutex was taken beside a semaphore")
			}
			_ = h.Unlock()
		},
		"given up": func(w *world, c, other *holdfast.Client) {
			h := w.lock(other, "n")
			ctx, cancel := short()
			defer cancel()
			_, _ = c.Mutex("n", holdfast.WithTTL(ttl)).Lock(ctx)
			_ = h.Unlock()
		},
		"given up as it is granted": func(w *world, c, other *holdfast.Client) {
			h := w.lock(other, "n")
			ctx, cancel := short()
			defer cancel()
			time.AfterFunc(100*time.Millisecond, func() { _ = h.Unlock() })
			if got, err := c.Mutex("n", holdfast.WithTTL(ttl)).Lock(ctx); err == nil {
				_ = got.Unlock()
			}
			time.Sleep(time.Second)
		},
		"given up while no server answers": func(w *world, c, other *holdfast.Client) {
			h := w.lock(other, "n")
			for _, host := range w.hosts {
				w.net.setSilent(host, true)
			}
			ctx, cancel := short()
			defer cancel()
			_, _ = c.Mutex("n", holdfast.WithTTL(ttl)).Lock(ctx)
			time.Sleep(3 * ttl)
			for _, host := range w.hosts {
				w.net.setSilent(host, false)
			}
			_ = h.Unlock()
		},
		"servers are gone": func(w *world, c, other *holdfast.Client) {
			servers := w.net.servers
			w.net.mu.Lock()
			w.net.servers = nil
			w.net.mu.Unlock()
			if _, err := c.Mutex("n", holdfast.WithTTL(ttl)).Lock(context.Background()); err == nil {
				w.Fatalf("a lock was taken without a server")
			}
			time.Sleep(3 * ttl)
			w.net.mu.Lock()
			w.net.servers = servers
			w.net.mu.Unlock()
			time.Sleep(ttl)
		},
		"released after a wait": func(w *world, c, other *holdfast.Client) {
			h := w.lock(other, "n")
			time.AfterFunc(100*time.Millisecond, func() { _ = h.Unlock() })
			_ = w.lock(c, "n").Unlock()
		},
		"tried": func(w *world, c, other *holdfast.Client) {
			h := w.lock(other, "n")
			_, _ = c.Mutex("n", holdfast.WithTTL(ttl)).TryLock(context.Background())
			_ = h.Unlock()
			if got, err := c.Mutex("n", holdfast.WithTTL(ttl)).TryLock(context.Background()); err == nil {
				_ = got.Unlock()
			}
		},
		"broken": func(w *world, c, other *holdfast.Client) {
			h := w.lock(other, "n")
			time.AfterFunc(100*time.Millisecond, func() {
				d := memlock.New(w.store)
				q, err := d.Inspect(context.Background(), "n")
				if err != nil {
					w.Fatalf("%v", err)
				}
				for _, e := range q.Tickets {
					_ = d.Break(context.Background(), "n", e.ID)
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), ttl)
			defer cancel()
			if got, err := c.Mutex("n", holdfast.WithTTL(ttl)).Lock(ctx); err == nil {
				_ = got.Unlock()
			}
			_ = h.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				d := w.open()
				c, err := holdfast.New(d)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				other := w.client()
				for range 3 {
					end(w, c, other)
				}
				time.Sleep(time.Minute) // events come late
				d.records.mu.Lock()
				defer d.records.mu.Unlock()
				if n, m, k := len(d.records.granted), len(d.records.expected), len(d.records.known); n+m+k != 0 {
					t.Errorf("%d grants, %d waits and %d records are kept", n, m, k)
				}
			})
		})
	}
}
