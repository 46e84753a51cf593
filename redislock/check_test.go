package redislock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

func findings(t *testing.T, m *member) map[string]driver.Finding {
	t.Helper()
	fs, err := m.Check(m.ctx())
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[string]driver.Finding)
	for _, f := range fs {
		if f.Topic == "" || f.Detail == "" || (f.Level == driver.OK) != (f.Advice == "") {
			t.Errorf("finding %+v", f)
		}
		by[f.Topic] = f
	}
	return by
}

func TestCheck(t *testing.T) {
	clock := servers.NewClock(t, t.TempDir())
	s := servers.Redis(t, servers.RedisOptions{Durable: true, Env: clock.Env()})
	m := enter(t, s, "")
	for topic, f := range findings(t, m) {
		if f.Level != driver.OK {
			t.Errorf("%s: %+v", topic, f)
		}
	}
	if keys := texts(s.Do(t, "KEYS", "*")); !slices.Equal(keys, []string{wire.MarkName}) {
		t.Errorf("the check left %q", keys)
	}
	set := func(name, value string) func() {
		return func() { s.Do(t, "CONFIG", "SET", name, value) }
	}
	for _, c := range []struct {
		topic    string
		make, no func()
		level    driver.Level
		detail   string
	}{
		{"eviction", set("maxmemory-policy", "volatile-ttl"), set("maxmemory-policy", "noeviction"), driver.Warning, "volatile-ttl"},
		{"eviction", func() { set("maxmemory-policy", "allkeys-lru")(); set("maxmemory", "1gb")() },
			func() { set("maxmemory-policy", "noeviction")(); set("maxmemory", "0")() }, driver.Problem, "drops locks"},
		{"persistence", set("appendfsync", "everysec"), set("appendfsync", "always"), driver.Warning, "everysec"},
		{"persistence", set("appendonly", "no"), set("appendonly", "yes"), driver.Warning, "forgets"},
		{"uptime", set("appendonly", "no"), set("appendonly", "yes"), driver.Warning, "restart"},
		{"memory", set("maxmemory", "1"), set("maxmemory", "0"), driver.Warning, "used"},
		{"rights", set("maxmemory", "1"), set("maxmemory", "0"), driver.Problem, "OOM"},
		{"rights", func() { s.Do(t, "ACL", "SETUSER", "default", "-hset") }, func() { s.Do(t, "ACL", "SETUSER", "default", "+hset") }, driver.Problem, "take a lock"},
		{"push", func() { s.Do(t, "ACL", "SETUSER", "default", "-publish") }, func() { s.Do(t, "ACL", "SETUSER", "default", "+publish") }, driver.Problem, "publish"},
		{"server", func() { s.Do(t, "ACL", "SETUSER", "default", "-info") }, func() { s.Do(t, "ACL", "SETUSER", "default", "+info") }, driver.Warning, "INFO is refused"},
		{"replication", func() { s.Do(t, "REPLICAOF", "127.0.0.1", "1") }, func() { s.Do(t, "REPLICAOF", "NO", "ONE") }, driver.Problem, "slave"},
		{"clock", func() { clock.Step(t, time.Hour) }, func() { clock.Step(t, -time.Hour) }, driver.Warning, "1h"},
	} {
		c.make()
		f := findings(t, m)[c.topic]
		c.no()
		if f.Level != c.level || !strings.Contains(f.Detail, c.detail) {
			t.Errorf("%s is %+v, want %v: %s", c.topic, f, c.level, c.detail)
		}
	}
	// A primary with replicas.
	servers.Redis(t, servers.RedisOptions{Args: []string{"--replicaof", "127.0.0.1", portOf(s)}})
	eventually(t, "the replica is there", func() bool { return s.Info(t, "replication", "connected_slaves") == "1" })
	if f := findings(t, m)["replication"]; f.Level != driver.Warning || !strings.Contains(f.Advice, "min-replicas-to-write") {
		t.Errorf("with a replica: %+v", f)
	}
	set("min-replicas-to-write", "1")()
	if f := findings(t, m)["replication"]; f.Level != driver.Warning || strings.Contains(f.Advice, "min-replicas-to-write") {
		t.Errorf("with a replica that has to be there: %+v", f)
	}
}

// TestIdentity checks that the identity tells servers, databases and prefixes apart, and
// has no secret.
func TestIdentity(t *testing.T) {
	const secret = "s3cret-word"
	s, other := servers.Redis(t, servers.RedisOptions{Password: secret}), servers.Redis(t, servers.RedisOptions{})
	id := func(s *servers.RedisServer, path, query string) string {
		t.Helper()
		d, err := Open(t.Context(), strings.Replace(s.URL(query), s.Addr(), s.Addr()+path, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		id, err := d.Identity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	base := id(s, "", "")
	if !strings.Contains(s.URL(""), secret) || strings.Contains(base, secret) {
		t.Errorf("the identity of %s is %s", s.URL(""), base)
	}
	if again := id(s, "/0", "prefix="+DefaultPrefix); again != base {
		t.Errorf("%s and %s are one", base, again)
	}
	for what, got := range map[string]string{"server": id(other, "", ""), "database": id(s, "/1", ""), "prefix": id(s, "", "prefix=x")} {
		if got == base {
			t.Errorf("another %s has the identity %s", what, got)
		}
	}
}
