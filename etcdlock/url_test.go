package etcdlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/namespace"
)

// TestBadURLs checks that the error about a bad URL comes at once, and without
// the password.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"":                                     "begin with etcd",
		"etcd:h":                               "begin with etcd",
		"redis://h":                            "begin with etcd",
		"etcd://u:secret@h/path":               "path",
		"etcd://u:secret@h#x":                  "percent-encoded",
		"etcd://u:secret@h:port":               "port",
		"etcd://u:secret@h:0":                  "port",
		"etcd://u:secret@h:65536":              "port",
		"etcd://u:secret@::1":                  "brackets",
		"etcd://u:secret@[::1:2379":            "malformed",
		"etcd://u:secret@h i":                  "malformed",
		"etcd://secret@h":                      "name and a password",
		"etcd://:secret@h":                     "name and a password",
		"etcd://u:@h":                          "name and a password",
		"etcd://u:sec%zzret@h":                 "percent-encoded",
		"etcd://u:secret:more@h":               "percent-encoded",
		"etcd://u:secret@h?%zz=1":              "cannot be parsed",
		"etcd://u:secret@h?root=/x":            `unknown option "root"`,
		"etcd://u:secret@h?prefix=a&prefix=b":  "more than once",
		"etcd://u:secret@h?dial_timeout=5":     "dial_timeout",
		"etcd://u:secret@h?dial_timeout=0s":    "dial_timeout",
		"etcd://u:secret@h?ca=x":               "needs the scheme etcds",
		"etcds://u:secret@h?ca=/does/not/be":   "option ca",
		"etcds://u:secret@h?cert=x":            "together",
		"etcds://u:secret@h?server_name=":      "empty",
		"etcd://u:secret@127.0.0.1?prefix=%ff": "prefix",
	} {
		begun := time.Now()
		d, err := etcdlock.Open(within(t, time.Minute), url)
		if err == nil {
			d.Close()
			t.Errorf("%q is taken", url)
			continue
		}
		if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want an error that says %q and not the password", url, err, says)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%q: the error took %v", url, took)
		}
	}
	if _, err := etcdlock.New(nil, nil); err == nil {
		t.Error("no client is taken")
	}
}

// TestNamespace checks that the namespace comes before the prefix, as in
// package namespace of the client library: its locks and ours exclude each
// other.
func TestNamespace(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	c, cli := locks(t, s, "namespace=space/&prefix=locks/"), client(t, s, nil)
	h := lock(t, c, "n")
	if key, _ := keyOf(t, cli, "space/locks/n"); !strings.HasPrefix(key, "space/locks/n/") {
		t.Errorf("the key is %q", key)
	}
	cli.KV = namespace.NewKV(cli.KV, "space/")
	cli.Watcher = namespace.NewWatcher(cli.Watcher, "space/")
	cli.Lease = namespace.NewLease(cli.Lease, "space/")
	theirs := mutexOf(t, cli, "locks/n")
	if err := theirs.TryLock(ctx); err != concurrency.ErrLocked {
		t.Errorf("their TryLock: %v, want ErrLocked", err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if err := theirs.Lock(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Mutex("n").TryLock(ctx); err == nil {
		t.Error("we take what they hold")
	}
	if err := theirs.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if r, err := cli.Get(ctx, "locks/n/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || r.Count != 0 {
		t.Errorf("left behind: %+v, %v", r, err)
	}
}
