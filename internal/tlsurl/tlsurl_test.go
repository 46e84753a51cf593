package tlsurl_test

import (
	"crypto/tls"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/tlsurl"
)

func TestParse(t *testing.T) {
	certs := servers.NewCerts(t, t.TempDir())
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		query  string
		secure bool
		says   string // "" for no error
	}{
		{"", false, ""},
		{"prefix=x", false, ""},
		{"ca=" + certs.CA, false, "option ca needs the scheme xs"},
		{"cert=x&key=y", false, "option cert needs the scheme xs"},
		{"key=y", false, "option key needs the scheme xs"},
		{"server_name=y", false, "option server_name needs the scheme xs"},
		{"", true, ""},
		{"server_name=y&ca=" + certs.CA + "&cert=" + certs.ClientCert + "&key=" + certs.ClientKey, true, ""},
		{"server_name=", true, "server_name is empty"},
		{"ca=" + none, true, "option ca: open " + none},
		{"ca=" + certs.ClientKey, true, "has no certificate"},
		{"cert=" + certs.ClientCert, true, "together"},
		{"key=" + certs.ClientKey, true, "together"},
		{"cert=" + certs.ClientCert + "&key=" + certs.Key, true, "options cert and key"},
		{"cert=" + none + "&key=" + certs.Key, true, "options cert and key"},
	} {
		q, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tlsurl.Parse(q, "xs", c.secure)
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q: %v, want an error that says %q", c.query, err, c.says)
			}
		case err != nil:
			t.Errorf("%q: %v", c.query, err)
		case c.secure != (got != nil):
			t.Errorf("%q: the configuration is %v", c.query, got)
		case got == nil:
		case got.MinVersion != tls.VersionTLS12 || got.ServerName != q.Get("server_name"),
			q.Has("ca") != (got.RootCAs != nil), q.Has("cert") != (len(got.Certificates) == 1):
			t.Errorf("%q: the configuration is %+v", c.query, got)
		}
	}
}
