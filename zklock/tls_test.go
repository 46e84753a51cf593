package zklock_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestLockOverTLS checks locks over TLS, with certificates on both sides, and that each
// way in which the certificates can be wrong is one clear error.
func TestLockOverTLS(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{TLS: true})
	ca, pair := "ca="+s.Certs.CA, "&cert="+s.Certs.ClientCert+"&key="+s.Certs.ClientKey
	c := newClient(t, s.SecureURL("dial_timeout=1m&"+ca+pair))
	h, err := c.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plain := newClient(t, s.URL("", ""))
	if queue, err := plain.Inspect(t.Context(), "n"); err != nil || len(queue.Holders)+len(queue.Waiters) != 1 {
		t.Errorf("over another port the line is %+v, %v", queue, err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	another := servers.NewCerts(t, t.TempDir())
	var wg sync.WaitGroup
	defer wg.Wait()
	for what, w := range map[string]struct{ url, says string }{
		"an authority that is not trusted":  {s.SecureURL("dial_timeout=8s" + pair), "certificate"},
		"another authority":                 {s.SecureURL("dial_timeout=8s&ca=" + another.CA + pair), "certificate"},
		"a name that is not in it":          {s.SecureURL("dial_timeout=8s&server_name=elsewhere&" + ca + pair), "elsewhere"},
		"no certificate of the client":      {s.SecureURL("dial_timeout=8s&" + ca), ""},
		"a certificate of another's":        {s.SecureURL("dial_timeout=8s&" + ca + "&cert=" + another.ClientCert + "&key=" + another.ClientKey), ""},
		"a server that does not speak TLS":  {strings.Replace(s.URL("", "dial_timeout=8s&"+ca+pair), "zk://", "zks://", 1), "TLS handshake"},
		"a client that does not speak TLS":  {strings.Replace(s.SecureURL("dial_timeout=8s"), "zks://", "zk://", 1), "expects TLS"},
		"a certificate without its key":     {s.SecureURL(ca + "&cert=" + s.Certs.ClientCert), "together"},
		"a file that is no certificate":     {s.SecureURL("ca=" + s.Certs.Key), "certificate"},
		"a file that does not exist at all": {s.SecureURL("ca=" + filepath.Join(t.TempDir(), "none")), "none"},
	} {
		wg.Go(func() {
			_, err := openErr(t, w.url)
			if err == nil || !strings.Contains(err.Error(), w.says) {
				t.Errorf("%s: %v, want an error that says %q", what, err, w.says)
			} else if strings.Contains(w.url, "dial_timeout=8s") && driver.ClassOf(err) != driver.Unavailable {
				t.Errorf("%s: %v (%v)", what, err, driver.ClassOf(err))
			} else {
				t.Logf("%s: %v", what, err)
			}
		})
	}
}
