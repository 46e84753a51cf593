//go:build unix

package cli

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lockserver/lockauth"
)

// certificates are the server's certificate and the authorities of its clients, which
// can be read again.
type certificates struct {
	certFile, keyFile, caFile string
	state                     atomic.Pointer[certificateState]

	mu      sync.Mutex
	read    [][]byte // contents of the files that gave state
	problem string   // text of the last error of reload, empty after a success
}

// certificateState is one reading of the files. It is new after each change, so that
// no TLS session is resumed that an older one began.
type certificateState struct {
	config *tls.Config
	names  []string // DNS names of the server's certificate
	ends   time.Time
	pool   *x509.CertPool // nil without --client-ca

	mu       sync.Mutex
	verified map[[sha256.Size]byte]error // of clients' certificates, by their hash
}

// maxVerified bounds certificateState.verified.
const maxVerified = 10_000

// loadCertificates reads the files; ca is empty without client certificates.
func loadCertificates(cert, key, ca string) (*certificates, error) {
	c := &certificates{certFile: cert, keyFile: key, caFile: ca}
	if err := c.reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// reload reads the files again. After an error those before stay in force. It returns
// lockauth.ErrUnchanged if the files, or the error, are those of the last call.
func (c *certificates) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	read, state, err := c.load()
	if err != nil {
		if text := err.Error(); text != c.problem {
			c.problem = text
			return err
		}
		return lockauth.ErrUnchanged
	}
	if c.problem == "" && slices.EqualFunc(read, c.read, bytes.Equal) {
		c.state.Load().forget()
		return lockauth.ErrUnchanged
	}
	c.problem, c.read = "", read
	c.state.Store(state)
	return nil
}

func (c *certificates) load() (read [][]byte, _ *certificateState, _ error) {
	for _, file := range []string{c.certFile, c.keyFile, c.caFile} {
		if file == "" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		read = append(read, b)
	}
	pair, err := tls.X509KeyPair(read[0], read[1])
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	s := &certificateState{verified: make(map[[sha256.Size]byte]error), ends: pair.Leaf.NotAfter}
	for _, name := range pair.Leaf.DNSNames {
		if name != "" && name[0] != '*' {
			s.names = append(s.names, name)
		}
	}
	s.config = &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{pair},
	}
	if c.caFile != "" {
		s.pool = x509.NewCertPool()
		if !s.pool.AppendCertsFromPEM(read[2]) {
			return nil, nil, fmt.Errorf("client authorities %s: the file has no certificate", c.caFile)
		}
		s.config.ClientCAs, s.config.ClientAuth = s.pool, tls.VerifyClientCertIfGiven
	}
	return read, s, nil
}

// config returns the settings of a listener, which follow the files.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.state.Load().config, nil },
	}
}

// check verifies the client's certificate of a connection again: the authorities may
// have changed since the connection began. It is quick for a certificate that it has
// seen.
func (s *certificateState) check(state *tls.ConnectionState) error {
	if s.pool == nil {
		return errors.New("the server takes no client certificates any more")
	}
	leaf := state.PeerCertificates[0]
	key := sha256.Sum256(leaf.Raw)
	s.mu.Lock()
	err, seen := s.verified[key]
	s.mu.Unlock()
	if seen {
		return err
	}
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: s.pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.verified) >= maxVerified {
		clear(s.verified)
	}
	s.verified[key] = err
	return err
}

// forget lets check verify each certificate again, since those of authorities expire.
func (s *certificateState) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.verified)
}
