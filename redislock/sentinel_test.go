package redislock

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// openSentinel opens a driver, which the end of the test closes.
func openSentinel(t testing.TB, s *servers.RedisSentinels, query string) *Sentinel {
	t.Helper()
	return openAt(t, OpenSentinel, s.URL(query))
}

// sentinelHarness describes Sentinels of the test's own to the suite. Their
// time-outs are long, so that a paused primary stays the primary.
func sentinelHarness(t *testing.T, query string) (*servers.RedisSentinels, drivertest.Harness) {
	clock := servers.NewClock(t, t.TempDir())
	s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{Redis: servers.RedisOptions{Env: clock.Env()}, DownAfter: 600_000})
	primary := s.Nodes[0]
	return s, drivertest.Harness{
		TellsLeft: true,
		Open: func(dt drivertest.T) driver.Driver {
			d, err := OpenSentinel(context.Background(), s.URL(query))
			if err != nil {
				dt.Fatalf("OpenSentinel: %v", err)
			}
			return d
		},
		OpenAt: func(ctx context.Context, address string) (driver.Driver, error) {
			return OpenSentinel(ctx, "redis-sentinel://"+address+"/main")
		},
		TTL: time.Second,
		Pause: func(drivertest.T) func() {
			primary.Pause(t)
			return func() { primary.Resume(t) }
		},
		Restart:   func(drivertest.T) { primary.Restart(t) },
		LoseData:  func(drivertest.T) { primary.Do(t, "FLUSHALL") },
		StepClock: func(_ drivertest.T, d time.Duration) { clock.Step(t, d) },
		LeaveOut:  map[string]string{"clock-back-dead": clockBack},
		Rights:    rightsBehind(t, s, query),
		Connections: func(drivertest.T) (n int) {
			for _, r := range append(s.Sentinels, primary) {
				k, _ := strconv.Atoi(r.Info(t, "clients", "connected_clients"))
				n += k
			}
			return n
		},
	}
}

func TestSentinelConformance(t *testing.T) {
	_, h := sentinelHarness(t, "timeout=10s&db=2")
	drivertest.Run(t, h)
}

// TestSentinelLocks runs the suite of the core's locks, in one process and in
// several.
func TestSentinelLocks(t *testing.T) {
	t.Parallel()
	_, h := sentinelHarness(t, "timeout=10s")
	h.TTL = 4 * time.Second // a busy machine can renew its leases in time
	t.Run("locks", func(t *testing.T) {
		t.Parallel()
		drivertest.RunLocks(t, h)
	})
	// Apart from the cases above, which pause their primary.
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{DownAfter: 600_000})
		multiproc.Run(t, multiproc.Store{Target: s.URL(""), TTL: h.TTL})
	})
}

// TestF28_SentinelFailover kills or pauses a primary, whose replica is
// promoted: holds that the replica has go on, and every waiter is woken.
//
// Covers: F28, F29, F36 on sentinel.
func TestF28_SentinelFailover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "paused"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			// Sentinels take a primary that stands still for a moment for alive.
			s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{
				Redis: servers.RedisOptions{Password: "secret"}, SentinelPassword: "other", DownAfter: 5000})
			open := func() *member {
				return listen(t, openSentinel(t, s, "timeout=1s&sentinel_password=other"))
			}
			a, b := open(), open()
			held, waits := a.ticket("n"), b.ticket("n")
			first := a.take(held, driver.Held).Token
			b.take(waits, driver.Waiting)
			inStep(t, s.Nodes[0])
			gaps := len(b.heard(""))
			if how == "killed" {
				s.Nodes[0].Crash(t)
				s.Sentinels[0].Crash(t) // and one of the Sentinels that announce the new primary
			} else {
				s.Nodes[0].Pause(t)
			}
			a.outlasts(held, first)
			if p := b.woken(waits, gaps); p.Token <= first {
				t.Errorf("token %d after %d", p.Token, first)
			}
			if how == "paused" {
				s.Nodes[0].Resume(t) // it believes for a while that it is still the primary
			}
			again := a.ticket("n")
			if p := a.joins(again); p.State != driver.Waiting {
				t.Errorf("the next ticket is %v", p.State)
			}
			gaps = len(a.heard(""))
			b.left(waits)
			a.woken(again, gaps)
			want := driver.OK
			if how == "killed" {
				want = driver.Warning
			}
			// The Sentinels agree one after the other.
			var f driver.Finding
			eventually(t, "as many Sentinels as there are name the primary", func() bool {
				fs, err := a.Check(a.ctx())
				if err != nil {
					t.Fatal(err)
				}
				f = fs[len(fs)-1]
				return f.Level == want
			})
			if f.Topic != "sentinels" {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestSentinelOpenErrors checks that opening fails at once, and without a
// password in the error, if no Sentinel answers, or none knows the name.
func TestSentinelOpenErrors(t *testing.T) {
	t.Parallel()
	s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{
		Redis: servers.RedisOptions{Password: "secret"}, SentinelPassword: "other", DownAfter: 600_000})
	for what, c := range map[string]struct {
		url, says string
		class     driver.Class
	}{
		"name":              {strings.Replace(s.URL("sentinel_password=other"), "/main", "/nobody", 1), "no primary of the name", driver.Refused},
		"sentinel password": {s.URL("sentinel_password=wr0ng"), "WRONGPASS", driver.Refused},
		"password":          {strings.Replace(s.URL("sentinel_password=other"), "secret", "wr0ng", 1), "WRONGPASS", driver.Refused},
		"port":              {"redis-sentinel://127.0.0.1:1/main", "refused", driver.Unavailable},
		"no Sentinel":       {"redis-sentinel://:secret@" + s.Nodes[0].Addr() + "/main?sentinel_password=secret", "", driver.Refused},
	} {
		d, err := OpenSentinel(t.Context(), c.url)
		if err == nil {
			d.Close()
		}
		if driver.ClassOf(err) != c.class || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: class %v: %v", what, driver.ClassOf(err), err)
		}
		for _, hush := range []string{"secret", "other", "wr0ng"} {
			if err != nil && strings.Contains(err.Error(), hush) {
				t.Errorf("%s: the error has a password: %v", what, err)
			}
		}
	}
}
