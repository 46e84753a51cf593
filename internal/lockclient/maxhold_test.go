package lockclient

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestMaxHoldOfThePrincipalBoundsBelief bounds the holds of a principal by less than its TTL, and
// cuts a client off right after the event of its grant.
func TestMaxHoldOfThePrincipalBoundsBelief(t *testing.T) {
	bubble(t, func(w *world) {
		c0, err := holdfast.New(memlock.New(w.store))
		if err != nil {
			t.Fatal(err)
		}
		s, err := lockserver.New(c0, lockserver.Options{
			Auth: &lockserver.Auth{Identify: func(*http.Request) (lockserver.Principal, error) {
				all := []lockserver.Right{lockserver.RightRead, lockserver.RightLock, lockserver.RightBreak}
				return lockserver.Principal{Name: "tester", Grants: []lockserver.Grant{{May: all, MaxHold: time.Second}}}, nil
			}},
			Hosts:  []string{"server-a", "server-b", "localhost"},
			Limits: lockserver.Limits{NameSize: 4096, MinTTL: c0.Traits().MinTTL, MaxTTL: c0.Traits().MaxTTL},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = s.Drain(ctx)
			_ = c0.Close()
		})
		way := new(splitWay)
		way.to(s, s)
		w.net.set("localhost:7420", way)
		w.hosts = []string{"localhost:7420"}
		holder := w.lock(w.direct(), "n")
		waiter := w.lockAsync(w.client(), "n")
		if err := holder.Unlock(); err != nil {
			t.Fatal(err)
		}
		h := <-waiter
		w.kill("localhost:7420")
		cut := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		way.to(cut, cut)
		w.net.cut.Store(true)
		next := w.lock(w.direct(), "n")
		if h.Err() == nil {
			t.Errorf("a stranger holds, and the client believes in its hold for %v more", time.Until(h.Deadline()))
		}
		w.net.cut.Store(false)
		_ = next.Unlock()
		time.Sleep(time.Minute)
	})
}
