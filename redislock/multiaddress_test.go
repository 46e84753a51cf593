package redislock

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestParseMulti(t *testing.T) {
	c, err := parseCluster("redis-cluster://u:p%2Cw@a,b:7001,[::1]:7002?prefix=x&timeout=2s")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a:6379", "b:7001", "[::1]:7002"}; !slices.Equal(c.hosts, want) || c.user != "u" || c.password != "p,w" || c.Prefix != "x" {
		t.Errorf("%v, %+v", c.hosts, c.address)
	}
	if _, err := parseSentinel("redis-sentinel://a/my%20name"); err == nil {
		t.Error("a name with a space is accepted")
	}
	s, err := parseSentinel("rediss-sentinel://:pw@a,b:7001/name?db=3&sentinel_user=su&sentinel_password=sp")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a:26379", "b:7001"}; !slices.Equal(s.hosts, want) || s.master != "name" || s.db != 3 || s.password != "pw" {
		t.Errorf("%v, %+v", s.hosts, s)
	}
	if g := s.sentinel; g.user != "su" || g.password != "sp" || g.db != 0 {
		t.Errorf("the Sentinels are spoken to as %+v", g)
	}
	if a := s.address.to("other:1"); a.addr != "other:1" || a.tls.ServerName != "other" || s.tls.ServerName == "other" {
		t.Errorf("another host is %s, %s", a.addr, a.tls.ServerName)
	}
}

func TestParseMultiErrors(t *testing.T) {
	for s, says := range map[string]string{
		"redis://u:secret@h":                            "scheme",
		"redis-cluster:u:secret@h":                      "scheme",
		"redis-cluster://u:secret@h/1":                  "database 0 only",
		"redis-cluster://u:secret@h,h":                  "more than once",
		"redis-cluster://u:sec,ret@h":                   "comma",
		"redis-cluster://u:secret@h:x":                  "URL",
		"redis-cluster://u:secret@h,?prefix=x&db=1":     `unknown option "db"`,
		"redis-cluster://u:secret@h?restart_guard=on":   "restart_guard",
		"redis-sentinel://u:secret@h":                   "name",
		"redis-sentinel://u:secret@h/m?db=x":            "option db",
		"redis-sentinel://u:secret@h/m?db=1&db=2":       "more than once",
		"redis-sentinel://u:secret@h/m?sentinel_user=x": "sentinel_password",
		"redis-sentinel://u:secret@h/m?sentinel=secret": `unknown option "sentinel"`,
		"redis-sentinel://u:secret@h/m#x":               "a # in the URL",
		"redis-sentinel://u@h/m":                        "without a password",
		"rediss-cluster://h?ca=/nowhere":                "option ca",
	} {
		var err error
		if strings.Contains(s, "sentinel") {
			_, err = parseSentinel(s)
		} else {
			_, err = parseCluster(s)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", s, err, says)
		} else if strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "secret\"") {
			t.Errorf("%s: the error has a password: %v", s, err)
		}
	}
}

// FuzzParseMulti checks that every URL is read or refused.
func FuzzParseMulti(f *testing.F) {
	for _, s := range []string{"redis-cluster://a,b", "redis-sentinel://a,b/m?db=1", "rediss-cluster://u:p@[::1]:1,b:2?x=y", "redis-cluster://@,,", "redis-sentinel:///"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) (*multiAddress, error){parseCluster, parseSentinel} {
			if m, err := parse(s); err == nil && len(m.hosts) == 0 {
				t.Errorf("%q names no host", s)
			}
		}
	})
}

// TestTLSOfClusterAndSentinel opens a cluster and Sentinels over TLS, with
// certificates that are verified.
func TestTLSOfClusterAndSentinel(t *testing.T) {
	t.Parallel()
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{Redis: servers.RedisOptions{TLS: true, Password: "secret"}, NodeTimeout: time.Minute})
	s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{Redis: servers.RedisOptions{TLS: true, Password: "secret"}, DownAfter: 600_000})
	for what, open := range map[string]func(query string) (examinable, error){
		"cluster":  func(q string) (examinable, error) { return OpenCluster(context.Background(), c.URL(q)) },
		"sentinel": func(q string) (examinable, error) { return OpenSentinel(context.Background(), s.URL(q)) },
	} {
		if _, err := open(""); err == nil || driver.ClassOf(err) == driver.NotDone {
			t.Errorf("%s: an unknown certificate: %v", what, err)
		}
		ca := c.Nodes[0].Certs.CA
		if what == "sentinel" {
			ca = s.Nodes[0].Certs.CA
		}
		d, err := open("ca=" + url.QueryEscape(ca))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		m := listen(t, d)
		k, w := m.ticket("n"), m.ticket("n")
		m.take(k, driver.Held)
		m.take(w, driver.Waiting)
		m.leaves(k, driver.Held)
		m.granted(w)
		m.leaves(w, driver.Held)
		d.Close()
	}
}
