//go:build unix

package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	pair := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign completes a certificate; without an end it is valid for an hour.
func (a *authority) sign(c *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		a.t.Fatal(err)
	}
	c.NotBefore = time.Now().Add(-2 * time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) forServer() tls.Certificate {
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "lockd"}, DNSNames: []string{"lockd.example.org"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) forClient(name string, ends time.Time) tls.Certificate {
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: ends, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func pemOf(t *testing.T, pair tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// secured is a server with TLS and client certificates, and its files.
type secured struct {
	*lockd
	ca            *authority
	cert, key, in string // the files; in is that of the clients' authority
}

func serveTLS(t *testing.T, principals string) *secured {
	t.Helper()
	dir := t.TempDir()
	s := &secured{ca: newAuthority(t, "ca"), cert: filepath.Join(dir, "crt"), key: filepath.Join(dir, "key"), in: filepath.Join(dir, "ca")}
	s.writePair(t)
	s.writeAuthority(t, s.ca)
	s.lockd = serve(t, "--tls-cert", s.cert, "--tls-key", s.key, "--client-ca", s.in, "--auth", authFile(t, principals))
	return s
}

func (s *secured) writePair(t *testing.T) tls.Certificate {
	t.Helper()
	pair := s.ca.forServer()
	cert, key := pemOf(t, pair)
	replace(t, s.cert, cert)
	replace(t, s.key, key)
	return pair
}

func (s *secured) writeAuthority(t *testing.T, a *authority) {
	t.Helper()
	replace(t, s.in, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})))
}

// with returns the server as a client with a certificate sees it.
func (s *secured) with(certs ...tls.Certificate) *lockd {
	d := *s.lockd
	d.use(&http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: s.ca.pool(), Certificates: certs}})
	return &d
}

const auditor = `{"name":"auditor","cert":["auditor"],"rights":[{"prefix":"","may":["read","lock"]}]}`

func TestServeIdentifiesClientsByCertificate(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, auditor)
	later := time.Now().Add(time.Hour)
	known := s.with(s.ca.forClient("auditor", later))
	if a := known.must("/v1/server", nil, nil); a.status != 200 || !strings.Contains(a.text, `"principal":"auditor"`) {
		t.Errorf("a known certificate: %d %s", a.status, a.text)
	}
	if a := known.must("/v1/server", nil, bearer("wrong")); a.status != http.StatusUnauthorized {
		t.Errorf("a bad token beside a good certificate: %d %s", a.status, a.text)
	}
	if a := known.must("/v1/server", nil, func(r *http.Request) { r.Host = "lockd.example.org" }); a.status != 200 {
		t.Errorf("the host that the certificate names: %d %s", a.status, a.text)
	}
	if a := s.with(s.ca.forClient("mallory", later)).must("/v1/server", nil, nil); a.status != http.StatusUnauthorized {
		t.Errorf("a certificate of nobody: %d %s", a.status, a.text)
	}
	if a := s.with().must("/v1/server", nil, nil); a.status != http.StatusUnauthorized {
		t.Errorf("no certificate: %d %s", a.status, a.text)
	}
}

// refusedTLS reports whether a client is refused before its request.
func refusedTLS(t *testing.T, d *lockd, what string) {
	t.Helper()
	a, err := d.do("/v1/server", nil, nil)
	if err == nil {
		t.Errorf("%s was answered %d %s", what, a.status, a.text)
	}
}

func TestServeRefusesWrongAndExpiredCertificates(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, auditor)
	later := time.Now().Add(time.Hour)
	stranger := newAuthority(t, "ca") // of the same name
	refusedTLS(t, s.with(stranger.forClient("auditor", later)), "a certificate of another authority")
	refusedTLS(t, s.with(s.ca.forClient("auditor", time.Now().Add(-time.Hour))), "an expired certificate")
	refusedTLS(t, s.with(s.ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "auditor"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})), "a server's certificate")
	old := *s.lockd
	old.use(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.ca.pool(), MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}})
	refusedTLS(t, &old, "TLS 1.1")
	plain := *s.lockd
	plain.url = strings.Replace(plain.url, "https:", "http:", 1)
	plain.use(&http.Transport{})
	if a, err := plain.do("/v1/server", nil, nil); err == nil && a.status != http.StatusBadRequest {
		t.Errorf("a request without TLS: %d %s", a.status, a.text)
	}
}

func TestServeReadsCertificatesAgain(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, auditor)
	client := s.ca.forClient("auditor", time.Now().Add(time.Hour))
	open := s.with(client)
	open.must("/v1/server", nil, nil)

	replace(t, s.key, "broken")
	s.says("err", "stays in force")
	s.with(client).must("/v1/server", nil, nil)

	pair := s.writePair(t)
	s.says("err", `msg="read again" subject=certificates`)
	fresh := s.with(client)
	fresh.must("/v1/server", nil, nil)
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{RootCAs: s.ca.pool()})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.ConnectionState().PeerCertificates[0].SerialNumber; got.Cmp(pair.Leaf.SerialNumber) != 0 {
		t.Errorf("the server shows certificate %v, want the new one, %v", got, pair.Leaf.SerialNumber)
	}
	c.Close()

	// Another authority of clients: connections that are open lose their rights, too.
	other := newAuthority(t, "other")
	s.writeAuthority(t, other)
	eventually(t, func() bool { return strings.Count(s.read("err"), `msg="read again" subject=certificates`) == 2 },
		func() string { return s.read("err") })
	if a, err := open.do("/v1/server", nil, nil); err == nil && a.status != http.StatusUnauthorized {
		t.Errorf("a connection with a certificate of the old authority: %d %s", a.status, a.text)
	}
	s.with(other.forClient("auditor", time.Now().Add(time.Hour))).must("/v1/server", nil, nil)
}
