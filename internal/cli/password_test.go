//go:build unix

package cli

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// asked begins what is said where a password is missing.
const asked = "the server wants a password: write it before the host"

const rightPassword, wrongPassword = "hunter2Qx", "wr0ngQx"

// digestAlone is a ZooKeeper that serves nobody without a user, and everybody
// with any: it leaves passwords to the ACLs.
const digestAlone = "zookeeper with digest alone"

// protected are servers that want a password: each returns a URL with the right
// one, and other URLs that lack one, with what has to be said of them.
var protected = map[string]func(t *testing.T) (url string, lacking map[string]string){
	"redis": func(t *testing.T) (string, map[string]string) {
		return servers.Redis(t, servers.RedisOptions{Password: rightPassword}).URL(""), nil
	},
	"sentinel": func(t *testing.T) (string, map[string]string) {
		s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{
			Redis: servers.RedisOptions{Password: rightPassword}, SentinelPassword: rightPassword, DownAfter: 600_000})
		return s.URL("sentinel_password=" + rightPassword), map[string]string{
			s.URL(""): "wants a password: give it with the option sentinel_password",
			s.URL("sentinel_password=" + wrongPassword): "no such user with this sentinel_password",
		}
	},
	"cluster": func(t *testing.T) (string, map[string]string) {
		return servers.RedisClusterOf(t, servers.RedisClusterOptions{Redis: servers.RedisOptions{Password: rightPassword}, NodeTimeout: time.Minute}).URL(""), nil
	},
	"redlock": func(t *testing.T) (string, map[string]string) {
		var hosts []string
		for range 3 {
			hosts = append(hosts, servers.Redis(t, servers.RedisOptions{Password: rightPassword}).Addr())
		}
		return "redlock://:" + rightPassword + "@" + strings.Join(hosts, ",") + "?restart_guard=off", nil
	},
	"etcd": func(t *testing.T) (string, map[string]string) {
		s := servers.Etcd(t, servers.EtcdOptions{Args: []string{"--bcrypt-cost", "4"}})
		for _, args := range [][]string{{"user", "add", "root:" + rightPassword}, {"user", "grant-role", "root", "root"}, {"auth", "enable"}} {
			if out, err := s.Ctl(t, args...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", args, err, out)
			}
		}
		return "etcd://root:" + rightPassword + "@" + s.Members[0].Addr(), nil
	},
	"postgres": func(t *testing.T) (string, map[string]string) {
		s := servers.Postgres(t, servers.PostgresOptions{Password: rightPassword})
		s.Exec(t, "GRANT CREATE ON SCHEMA public TO app")
		url := s.URL("app", "")
		return url, map[string]string{strings.Replace(url, ":"+rightPassword+"@", "@", 1): asked}
	},
	"mysql": func(t *testing.T) (string, map[string]string) {
		s := servers.MariaDB(t, servers.MariaDBOptions{})
		s.Exec(t, "CREATE USER safe@'%' IDENTIFIED BY '"+rightPassword+"'")
		s.Exec(t, "GRANT ALL ON locks.* TO safe@'%'")
		at := "@127.0.0.1:" + strconv.Itoa(s.Port) + "/locks"
		return "mysql://safe:" + rightPassword + at, map[string]string{"mysql://safe" + at: asked}
	},
	"zookeeper": func(t *testing.T) (string, map[string]string) {
		url := strings.Replace(servers.ZooKeeper(t, servers.ZooKeeperOptions{}).URL("", "root=/theirs"), "zk://", "zk://ann:"+rightPassword+"@", 1)
		holdfastHere("--store", url, "run", "n", "--", "true").want(t, exitOK, "", "") // makes the nodes, which are ann's
		return url, nil
	},
	digestAlone: func(t *testing.T) (string, map[string]string) {
		s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"enforce.auth.enabled=true", "enforce.auth.schemes=digest"}})
		return strings.Replace(s.URL("", ""), "zk://", "zk://ann:"+rightPassword+"@", 1), nil
	},
}

// TestF133_ForgottenPasswordIsCalledSo opens real servers without their
// password, and with a wrong one: each store says at once, in one line, that it
// wants a password and where the URL has it, or that this one is wrong.
func TestF133_ForgottenPasswordIsCalledSo(t *testing.T) {
	for store, start := range protected {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			url, lacking := start(t)
			holdfastHere("--store", url, "ls").want(t, exitOK, "", "")
			said := make(map[string]string)
			if store != digestAlone {
				said[strings.Replace(url, ":"+rightPassword+"@", ":"+wrongPassword+"@", 1)] = "password"
			}
			before, after, _ := strings.Cut(url, "@")
			scheme, _, _ := strings.Cut(before, "://")
			said[scheme+"://"+after] = asked
			maps.Copy(said, lacking)
			for url, want := range said {
				r := holdfastHere("--store", url, "ls").want(t, exitUnavailable, "", want)
				if strings.Count(r.err, "\n") != 1 || strings.Contains(r.err, rightPassword) || strings.Contains(r.err, wrongPassword) {
					t.Errorf("%s: %q", url, r.err)
				}
			}
		})
	}
}
