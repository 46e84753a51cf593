package redislock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

func TestParseURL(t *testing.T) {
	for url, want := range map[string]address{
		"redis://":                              {addr: "localhost:6379"},
		"redis:///":                             {addr: "localhost:6379"},
		"redis://h":                             {addr: "h:6379"},
		"redis://h:1/":                          {addr: "h:1"},
		"redis://[::1]:7/3":                     {addr: "[::1]:7", db: 3},
		"redis://:pw@h":                         {addr: "h:6379", password: "pw"},
		"redis://me:@h":                         {addr: "h:6379", user: "me"},
		"redis://me:p%2Fw%40%3A%3F%23%25@h:1/2": {addr: "h:1", user: "me", password: "p/w@:?#%", db: 2},
		"redis://h?prefix=a%7Bb%7D:":            {addr: "h:6379", Settings: server.Settings{Prefix: "a{b}:"}},
		"redis://h?dial_timeout=1s&timeout=2s":  {addr: "h:6379", dialTimeout: time.Second, timeout: 2 * time.Second},
	} {
		got, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if want.Prefix == "" {
			want.Prefix = DefaultPrefix
		}
		if want.dialTimeout == 0 {
			want.dialTimeout, want.timeout = 5*time.Second, 5*time.Second
		}
		if *got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", url, *got, want)
		}
	}
	if a, err := parseURL("redis://h?prefix="); err != nil || a.Prefix != "" {
		t.Errorf("an empty prefix: %+v, %v", a, err)
	}
	if a, err := parseURL("rediss://h:1?server_name=x"); err != nil || a.tls == nil || a.tls.ServerName != "x" {
		t.Errorf("TLS: %+v, %v", a, err)
	}
}

// TestParseURLErrors checks that each wrong URL has an error of its own, which
// never has the password.
func TestParseURLErrors(t *testing.T) {
	for url, want := range map[string]string{
		"redis://u:secret@h:port":                                   "cannot be parsed",
		"redis://u:sec/ret@h":                                       "cannot be parsed",
		"redis://u:sec?ret@h":                                       "cannot be parsed",
		"redis://u:secret%@h":                                       "cannot be parsed",
		"redis://u:sec#ret@h":                                       "cannot be parsed",
		"redis://u:secret@h#x":                                      "has to be percent-encoded",
		"http://u:secret@h":                                         "neither redis nor rediss",
		"redis:u:secret@h":                                          "not of the form",
		"redis://secret@h":                                          "user without a password",
		"redis://u:secret@h:":                                       "no port",
		"redis://u:secret@h:0":                                      "port is not a number",
		"redis://u:secret@h:65536":                                  "port is not a number",
		"redis://u:secret@h/x":                                      "not the number of a database",
		"redis://u:secret@h/-1":                                     "not the number of a database",
		"redis://u:secret@h/1/2":                                    "not the number of a database",
		"redis://u:secret@h/1?prefx=a":                              `unknown option "prefx"; there are ca, cert, dial_timeout, eviction, key, min_replicas, min_replicas_timeout, prefix, restart_guard, server_name, timeout`,
		"redis://u:secret@h?prefix=a&prefix=b":                      "more than once",
		"redis://u:secret@h?prefix=a;b":                             "options cannot be parsed",
		"redis://u:secret@h?prefix=%ff":                             "not valid UTF-8",
		"redis://u:secret@h?timeout=5":                              "timeout is not a duration",
		"redis://u:secret@h?timeout=-5s":                            "timeout is not a duration",
		"redis://u:secret@h?timeout=2h":                             "timeout is not a duration",
		"redis://u:secret@h?eviction=maybe":                         "neither report nor refuse",
		"redis://u:secret@h?min_replicas=-1":                        "min_replicas is not a number",
		"redis://u:secret@h?min_replicas=1&min_replicas_timeout=3s": "half the option timeout",
		"redis://u:secret@h?min_replicas_timeout=1s":                "without min_replicas",
		"redis://u:secret@h?restart_guard=yes":                      "restart_guard is neither",
		"redis://u:secret@h?restart_guard=1ms":                      "restart_guard is neither",
		"redis://u:secret@h?dial_timeout=":                          "dial_timeout is not a duration",
		"redis://u:secret@h?ca=x":                                   "ca needs the scheme rediss",
		"rediss://u:secret@h?ca=nowhere":                            "option ca: ",
		"rediss://u:secret@h?cert=x":                                "cert and key are given together",
		"rediss://u:secret@h?cert=nowhere&key=x":                    "options cert and key: ",
		"rediss://u:secret@h?server_name=":                          "server_name is empty",
		"rediss://u:secret@h?ca=url.go":                             "has no certificate",
		"redis://u:secret@h?" + strings.Repeat("s", 99):             "unknown option",
	} {
		_, err := Open(context.Background(), url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "sec") || len(err.Error()) > 300) {
			t.Errorf("%s: the error tells too much: %v", url, err)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    *Options
		want string
		bad  bool
	}{
		{o: nil, want: DefaultPrefix}, {o: &Options{}, want: DefaultPrefix}, {o: &Options{Prefix: "x"}, want: "x"},
		{o: &Options{NoPrefix: true}},
		{o: &Options{NoPrefix: true, Prefix: "x"}, bad: true},
		{o: &Options{Prefix: "\xff"}, bad: true},
		{o: &Options{Prefix: strings.Repeat("x", 513)}, bad: true},
	} {
		if got, err := c.o.prefix(); got != c.want || (err != nil) != c.bad {
			t.Errorf("%+v: %q, %v", c.o, got, err)
		}
	}
	if _, err := New(nil, nil); err == nil {
		t.Error("a nil client is taken")
	}
}

// TestOpenErrors checks that opening anything but the intended kind of server
// fails at once, with an error that names the reason.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{Password: "right"})
	secure := servers.Redis(t, servers.RedisOptions{TLS: true})
	strange := servers.NewCerts(t, t.TempDir())
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	closed := fmt.Sprintf("127.0.0.1:%d", servers.FreePort(t))
	replica := servers.Redis(t, servers.RedisOptions{Args: []string{"--replicaof", "127.0.0.1", "1"}})
	node := servers.Redis(t, servers.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
	for _, c := range []struct {
		what, url, want string
		class           driver.Class
	}{
		{"wrong password", "redis://:secret-guess@" + s.Addr(), "WRONGPASS", driver.Refused},
		{"wrong user", "redis://nobody:secret-guess@" + s.Addr(), "WRONGPASS", driver.Refused},
		{"no password", "redis://" + s.Addr(), "wants a password: write it before the host", driver.Refused},
		{"no such database", s.URL("") + "/99", "DB index is out of range", driver.Refused},
		{"nobody there", "redis://:secret@" + closed, "connection refused", driver.Unavailable},
		{"a web server", "redis://:secret@" + strings.TrimPrefix(web.URL, "http://"), "no Redis reply", driver.Unavailable},
		{"a mute server", "redis://:secret@" + mute.Addr().String() + "?dial_timeout=300ms", "no reply in time", driver.Unavailable},
		{"TLS without", "redis://" + secure.Addr(), "whether it expects TLS", driver.Unavailable},
		{"no TLS with", "rediss://:right@" + s.Addr() + "?dial_timeout=3s", "whether it expects TLS", driver.Unavailable},
		{"unknown authority", "rediss://" + secure.Addr(), "certificate is not trusted", driver.Refused},
		{"wrong authority", "rediss://" + secure.Addr() + "?ca=" + strange.CA, "certificate is not trusted", driver.Refused},
		{"wrong name", "rediss://" + secure.Addr() + "?server_name=elsewhere&ca=" + secure.Certs.CA, "certificate is not trusted", driver.Refused},
		{"a replica", replica.URL(""), "locks need the primary", driver.Unavailable},
		{"a cluster", node.URL(""), "node of a cluster", driver.Refused},
	} {
		t.Run(c.what, func(t *testing.T) {
			begun := time.Now()
			d, err := Open(context.Background(), c.url)
			if err == nil {
				d.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), c.want) || driver.ClassOf(err) != c.class {
				t.Errorf("%v: %v\nwant %v: %s", driver.ClassOf(err), err, c.class, c.want)
			}
			if strings.Count(err.Error(), "redislock:") != 1 {
				t.Errorf("the error does not name us once: %v", err)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "right") {
				t.Errorf("the error has a password in it: %v", err)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	// The context bounds the opening.
	for _, end := range []func(context.Context) (context.Context, context.CancelFunc){
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		},
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := end(context.Background())
		begun := time.Now()
		_, err := Open(ctx, "redis://"+mute.Addr().String())
		if !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
			t.Errorf("with a context: %v", err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("with a context it took %v", took)
		}
		if _, err := Open(ctx, "redis://"+mute.Addr().String()); !errors.Is(err, ctx.Err()) {
			t.Errorf("with a context that is over: %v", err)
		}
		cancel()
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{TLS: true, Args: []string{"--tls-auth-clients", "yes"}})
	c := s.Certs
	if _, err := Open(context.Background(), s.URL("ca="+c.CA)); err == nil {
		t.Error("the server took a client without a certificate")
	}
	for _, query := range []string{"", "&server_name=localhost"} {
		m := enter(t, s, "ca="+c.CA+"&cert="+c.ClientCert+"&key="+c.ClientKey+query)
		one, two := m.ticket("n"), m.ticket("n")
		m.take(one, driver.Held)
		m.take(two, driver.Waiting)
		m.leaves(one, driver.Held)
		m.granted(two)
		m.leaves(two, driver.Held)
	}
	if _, err := Open(context.Background(), s.URL("ca="+c.CA+"&cert="+c.ClientCert+"&key="+filepath.Join(filepath.Dir(c.Key), "server.key"))); err == nil {
		t.Error("a key that does not belong to the certificate was taken")
	}
}

func TestNewRefusesOtherClients(t *testing.T) {
	node := servers.Redis(t, servers.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
	node.Do(t, "CLUSTER", "ADDSLOTS", "0")
	eventually(t, "the cluster is one", func() bool { return node.Info(t, "cluster", "cluster_enabled") == "1" })
	for _, single := range []bool{true, false} {
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{node.Addr()}, DisableCache: true, ForceSingleClient: single,
			ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10, RingScaleEachConn: 8,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(client, nil); err == nil || !strings.Contains(err.Error(), "cluster") {
			t.Errorf("a client of a cluster: %v", err)
		}
		client.Close()
	}
}

// TestClosedClient checks that requests on a client that its owner has closed
// are refused: the core would repeat other errors for ever.
func TestClosedClient(t *testing.T) {
	s := servers.SharedRedis(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, DisableCache: true, ForceSingleClient: true,
		ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10, RingScaleEachConn: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m := quiet(t, d)
	client.Close()
	if _, err := m.Join(m.ctx(), m.ticket("n"), true); driver.ClassOf(err) != driver.Refused || err == nil {
		t.Errorf("Join: %v", err)
	}
	if _, err := New(client, nil); err == nil {
		t.Error("a closed client was taken")
	}
}

// TestOpeningEndsWithItsContext opens each kind of store at a server that accepts and
// sends nothing: it returns when its context ends, not when connections have.
func TestOpeningEndsWithItsContext(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for scheme, open := range map[string]func(context.Context, string) (closer, error){
		"redis": func(ctx context.Context, url string) (closer, error) { return Open(ctx, url) },
		"redis-sentinel": func(ctx context.Context, url string) (closer, error) {
			return OpenSentinel(ctx, strings.Replace(url, "?", "/name?", 1))
		},
		"redis-cluster": func(ctx context.Context, url string) (closer, error) { return OpenCluster(ctx, url) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan time.Time, 1)
		go func() {
			conn, err := mute.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			over <- time.Now()
			cancel()
			_, _ = io.Copy(io.Discard, conn)
		}()
		d, err := open(ctx, scheme+"://"+mute.Addr().String()+"?dial_timeout=30s")
		took := time.Since(<-over)
		if err == nil {
			d.Close()
		}
		if err == nil || took > time.Second {
			t.Errorf("%s: %v, %v after the end of the context", scheme, err, took)
		}
	}
}

type closer interface{ Close() error }
