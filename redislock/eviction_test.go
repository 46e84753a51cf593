package redislock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF33_EvictionPolicyIsReported checks that a server which may evict locks
// when memory runs out is reported on opening, to the Observer too, and by the
// check, and that the option refuses it. It tries every policy, on a server, a
// cluster and behind Sentinels.
func TestF33_EvictionPolicyIsReported(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	r := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{DownAfter: 600_000})
	for what, store := range map[string]struct {
		open func(query string) (examinable, error)
		set  func(name, value string)
	}{
		"server": {
			func(q string) (examinable, error) { return Open(context.Background(), s.URL(q)) },
			func(name, value string) { s.Do(t, "CONFIG", "SET", name, value) },
		},
		"cluster": {
			func(q string) (examinable, error) { return OpenCluster(context.Background(), c.URL(q)) },
			func(name, value string) { c.Nodes[2].Do(t, "CONFIG", "SET", name, value) }, // one is enough
		},
		"sentinel": {
			func(q string) (examinable, error) { return OpenSentinel(context.Background(), r.URL(q)) },
			func(name, value string) { r.Nodes[0].Do(t, "CONFIG", "SET", name, value) },
		},
	} {
		for _, policy := range []string{
			"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
		} {
			store.set("maxmemory-policy", policy)
			for _, limit := range []string{"0", "1gb"} {
				store.set("maxmemory", limit)
				drops := policy != "noeviction" && limit != "0"
				if d, err := store.open("eviction=refuse"); drops {
					if driver.ClassOf(err) != driver.Refused || err == nil || !strings.Contains(err.Error(), policy) {
						t.Errorf("%s, %s with %s: %v", what, policy, limit, err)
					}
				} else if err != nil {
					t.Errorf("%s, %s with %s: %v", what, policy, limit, err)
				} else {
					d.Close()
				}
				d, err := store.open("")
				if err != nil {
					t.Fatal(err)
				}
				told := make(chan error, 10)
				l, err := holdfast.New(d, holdfast.WithObserver(&holdfast.Observer{
					BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) { told <- e.Err }}))
				if err != nil {
					t.Fatal(err)
				}
				level := driver.OK
				switch {
				case drops:
					level = driver.Problem
					select {
					case err := <-told:
						if !strings.Contains(err.Error(), policy) {
							t.Errorf("%s: the observer is told %v", what, err)
						}
					case <-time.After(patience):
						t.Errorf("%s, %s with %s: nobody is told", what, policy, limit)
					}
				case policy != "noeviction":
					level = driver.Warning
				}
				if n := len(d.(driver.Noticer).Notices()); (n > 0) != drops {
					t.Errorf("%s, %s with %s: %d notices", what, policy, limit, n)
				}
				if policy == "volatile-ttl" || policy == "noeviction" {
					if f := findings(t, quiet(t, d))["eviction"]; f.Level != level {
						t.Errorf("%s, %s with %s: the check finds %+v", what, policy, limit, f)
					}
				}
				l.Close()
			}
		}
	}
}
