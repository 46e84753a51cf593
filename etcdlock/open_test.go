package etcdlock_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestF77_TokensOfUsersRunOut checks that holds outlast the users' tokens,
// which expire after three seconds, and that waiters are woken after that.
func TestF77_TokensOfUsersRunOut(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.Etcd(t, servers.EtcdOptions{Version: v, Args: []string{"--auth-token-ttl", "3", "--bcrypt-cost", "4"}}) // passwords are cheap to check
		cli := client(t, s, nil)
		for _, step := range []func() error{
			func() error { _, err := cli.UserAdd(ctx, "root", "p@ss word"); return err },
			func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
			func() error { _, err := cli.UserAdd(ctx, "app", "p@ss word"); return err },
			func() error { _, err := cli.RoleAdd(ctx, "app"); return err },
			func() error {
				_, err := cli.RoleGrantPermission(ctx, "app", "app/", "app0", clientv3.PermissionType(clientv3.PermReadWrite))
				return err
			},
			func() error { _, err := cli.UserGrantRole(ctx, "app", "app"); return err },
			func() error { _, err := cli.AuthEnable(ctx); return err },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		url := func(user, query string) string {
			return "etcd://" + user + "@" + s.Members[0].Addr() + "?dial_timeout=30s&" + query
		}
		for _, bad := range []string{url("app:wrong", "prefix=app/"), url("nobody:x", ""), url("app:p%40ss%20word", "prefix=other/")} {
			_, err := etcdlock.Open(ctx, bad)
			if err == nil || driver.ClassOf(err) != driver.Refused {
				t.Errorf("Open: %v", err)
			} else if strings.Contains(err.Error(), "wrong") && !strings.Contains(err.Error(), "wrong user") {
				t.Errorf("the error contains the password: %v", err)
			}
		}
		var cs []*holdfast.Client
		for range 2 {
			d, err := etcdlock.Open(ctx, url("app:p%40ss%20word", "prefix=app/"))
			if err != nil {
				t.Fatal(err)
			}
			cs = append(cs, locksOn(t, d, holdfast.WithTTL(9*time.Second)))
		}
		h := lock(t, cs[0], "n")
		time.Sleep(4500 * time.Millisecond) // until all tokens have expired
		got := locking(t, cs[1], "n")
		waiting(t, cs[0], "n", 2)
		time.Sleep(3500 * time.Millisecond) // longer than until a renewal
		if err := h.Err(); err != nil {
			t.Errorf("the hold: %v", err)
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
		if err := taken(t, got).Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// TestF123_SlowServerIsOpened checks that Open succeeds if the server takes
// more than half of the time that it has for its first answer.
func TestF123_SlowServerIsOpened(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{})
	s.Members[0].Pause(t)
	const limit = 25 * time.Second
	opened := make(chan error, 1)
	go func() {
		d, err := etcdlock.Open(ctx, s.URL("dial_timeout="+limit.String()))
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	time.Sleep(limit * 6 / 10)
	s.Members[0].Resume(t)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// TestOpenSaysWhatIsWrong checks that Open soon returns one clear error (item 6
// of the store's list).
func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	speaks := func(words string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if words != "" {
					io.WriteString(c, words)
					c.Close()
				} else {
					t.Cleanup(func() { c.Close() })
				}
			}
		}()
		return l.Addr().String()
	}
	closed := fmt.Sprintf("127.0.0.1:%d", servers.FreePort(t)) // which nobody else will get
	s := servers.Etcd(t, servers.EtcdOptions{Members: 3})
	for _, m := range s.Members[1:] {
		m.Kill()
	}
	secure, another := servers.Etcd(t, servers.EtcdOptions{TLS: true}), servers.NewCerts(t, t.TempDir())
	for what, c := range map[string]struct{ url, says string }{
		"nobody listens":  {"etcd://" + closed, "refused"},
		"a web server":    {"etcd://" + speaks("HTTP/1.1 400 Bad Request\r\n\r\n"), "is it etcd"},
		"a Redis":         {"etcd://" + speaks("-ERR unknown command\r\n"), "is it etcd"},
		"a silent server": {"etcd://" + speaks("") + "?dial_timeout=1s", "no answer in 1s"},
		"no quorum":       {"etcd://" + s.Members[0].Addr() + "?dial_timeout=8s", "majority"},
		"TLS without":     {"etcd://" + secure.Members[0].Addr() + "?dial_timeout=2s", ""},
		"no certificate":  {"etcds://" + secure.Members[0].Addr() + "?ca=" + secure.Certs.CA + "&dial_timeout=2s", ""},
		"not trusted":     {"etcds://" + secure.Members[0].Addr() + "?dial_timeout=20s", "certificate"}, // long enough for a handshake on a busy machine
		"another CA":      {"etcds://" + secure.Members[0].Addr() + "?dial_timeout=20s&ca=" + another.CA, "certificate"},
		"another name":    {secure.URL("dial_timeout=20s&server_name=elsewhere"), "elsewhere"},
	} {
		start := time.Now()
		d, err := etcdlock.Open(within(t, time.Minute), c.url)
		if err == nil {
			d.Close()
			t.Errorf("%s: no error", what)
			continue
		}
		if cl := driver.ClassOf(err); cl != driver.Unavailable && cl != driver.Refused || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v (%v)", what, err, cl)
		}
		if took := time.Since(start); took > 35*time.Second {
			t.Errorf("%s: it took %v to say so", what, took)
		}
	}
	named, err := etcdlock.Open(ctx, secure.URL("server_name=localhost"))
	if err != nil {
		t.Errorf("another name that the certificate has: %v", err)
	} else {
		named.Close()
	}
	d, err := etcdlock.Open(ctx, secure.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	lock(t, locksOn(t, d), "n").Unlock()
}
