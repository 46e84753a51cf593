package servers

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
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certs are the files of a certificate authority made for one test, and of the
// certificates that it signed. The server's certificate is for localhost and
// 127.0.0.1.
type Certs struct {
	CA                    string
	Cert, Key             string // the server's
	ClientCert, ClientKey string

	client *tls.Config
}

// NewCerts creates the certificates in dir.
func NewCerts(t testing.TB, dir string) *Certs {
	t.Helper()
	ca, caKey := newCert(t, "test authority", nil, nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	c := new(Certs)
	c.CA = writePEM(t, dir, "ca.pem", "CERTIFICATE", ca.Raw)
	c.Cert, c.Key = c.issue(t, dir, "server", ca, caKey)
	c.ClientCert, c.ClientKey = c.issue(t, dir, "client", ca, caKey)
	pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	c.client = &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	return c
}

// Store writes the server's certificate and key into one file, the key in the
// form that Java reads, and returns the file's path.
func (c *Certs) Store(t testing.TB) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	all := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})...)
	path := filepath.Join(filepath.Dir(c.Cert), "server-store.pem")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Client returns the configuration of a client that trusts the authority and
// presents the client's certificate.
func (c *Certs) Client() *tls.Config { return c.client.Clone() }

func (c *Certs) issue(t testing.TB, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (cert, key string) {
	t.Helper()
	leaf, leafKey := newCert(t, name, ca, caKey)
	der, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, dir, name+".pem", "CERTIFICATE", leaf.Raw),
		writePEM(t, dir, name+".key", "EC PRIVATE KEY", der)
}

// newCert creates a certificate signed by ca or, if ca is nil, an authority.
func newCert(t testing.TB, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if ca == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
		tmpl.KeyUsage |= x509.KeyUsageCertSign
		ca, caKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func writePEM(t testing.TB, dir, file, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(dir, file)
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
