package lockauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

const someRules = `{"principals":[
	{"name":"billing","token_sha256":["` + hashA + `"],"cert":["spiffe://corp/billing","billing.example.org"]},
	{"name":"audit","cert":["audit","other.example.org"]},
	{"name":"uid:1000"}]}`

func request(path string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	for _, h := range header {
		r.Header.Add("Authorization", h)
	}
	return r
}

func TestTokenIsLookedUpByHash(t *testing.T) {
	r := rules(t, someRules)
	for _, c := range []struct {
		req  *http.Request
		name string
		err  error
	}{
		{request("/", "Bearer test"), "billing", nil},
		{request("/", "bearer  test "), "billing", nil},
		{request("/", "Bearer test2"), "", ErrUnknown},
		{request("/", "Bearer "+hashA), "", ErrUnknown}, // the hash is no token
		{request("/", "Bearer tes"), "", ErrUnknown},
		{request("/", "Bearer"), "", ErrBadHeader},
		{request("/", "Basic dGVzdA=="), "", ErrBadHeader},
		{request("/", "test"), "", ErrBadHeader},
		{request("/", "Bearer test", "Bearer test"), "", ErrBadHeader},
		{request("/", "Bearer "+strings.Repeat("x", maxToken+1)), "", ErrBadHeader},
		{request("/?token=test"), "", ErrBadHeader},
		{request("/?Access_Token=test", "Bearer test"), "", ErrBadHeader},
		{request("/"), "", ErrNoCredentials},
	} {
		p, err := r.Identify(c.req)
		if p.Name != c.name || !errors.Is(err, c.err) {
			t.Errorf("%s with %q is %q, %v; want %q, %v", c.req.URL, c.req.Header, p.Name, err, c.name, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "test") {
			t.Errorf("the error has the token: %v", err)
		}
	}
}

// withCert returns a request over a connection with a verified certificate.
func withCert(c *x509.Certificate, header ...string) *http.Request {
	r := request("/", header...)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	return r
}

func TestCertificateIsLookedUpByItsNames(t *testing.T) {
	r := rules(t, someRules)
	cert := func(cn string, uris []string, dns ...string) *x509.Certificate {
		c := &x509.Certificate{
			Subject: pkix.Name{CommonName: cn}, DNSNames: dns,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
		for _, text := range uris {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		return c
	}
	expired := cert("audit", nil)
	expired.NotAfter = time.Now().Add(-time.Minute)
	early := cert("audit", nil)
	early.NotBefore = time.Now().Add(time.Minute)
	unverified := withCert(cert("audit", nil))
	unverified.TLS.VerifiedChains = nil
	for name, c := range map[string]struct {
		req  *http.Request
		want string // the name, or part of the error
	}{
		"URI":                         {withCert(cert("", []string{"spiffe://corp/billing"})), "billing"},
		"DNS name":                    {withCert(cert("", nil, "x.example.org", "billing.example.org")), "billing"},
		"common name":                 {withCert(cert("audit", nil)), "audit"},
		"common name beside others":   {withCert(cert("audit", nil, "x.example.org")), ErrUnknown.Error()},
		"two principals":              {withCert(cert("", nil, "other.example.org", "billing.example.org")), "two principals"},
		"nobody's":                    {withCert(cert("mallory", nil)), ErrUnknown.Error()},
		"no name":                     {withCert(cert("", nil)), ErrUnknown.Error()},
		"expired while open":          {withCert(expired), "not valid at this time"},
		"not yet valid":               {withCert(early), "not valid at this time"},
		"unverified":                  {unverified, ErrNoCredentials.Error()},
		"a token before it":           {withCert(cert("audit", nil), "Bearer test"), "billing"},
		"a bad token, whatever it is": {withCert(cert("audit", nil), "Bearer wrong"), ErrUnknown.Error()},
	} {
		p, err := r.Identify(c.req)
		if err == nil && p.Name != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %s", name, p.Name, err, c.want)
		}
	}
}

func TestUnixPeerIsLookedUpByUser(t *testing.T) {
	r := rules(t, someRules)
	peer := func(uid uint32, header ...string) *http.Request {
		req := request("/", header...)
		return req.WithContext(WithUnixPeer(context.Background(), uid))
	}
	if p, err := r.Identify(peer(1000)); err != nil || p.Name != "uid:1000" {
		t.Errorf("user 1000 is %q, %v", p.Name, err)
	}
	if p, err := r.Identify(peer(0)); !errors.Is(err, ErrUnknown) {
		t.Errorf("user 0, whom the file does not have, is %q, %v", p.Name, err)
	}
	if p, err := r.Identify(peer(1000, "Bearer wrong")); !errors.Is(err, ErrUnknown) {
		t.Errorf("a bad token from user 1000 is %q, %v", p.Name, err)
	}
}
