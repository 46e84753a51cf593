// Package tlsurl reads what a store's URL says about TLS, so that all stores
// take the same options and say the same of the same mistake.
package tlsurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// Names returns the options:
//
//	ca            file of the certificates to trust, instead of the system's
//	cert, key     files of the client's certificate and its key
//	server_name   name in the servers' certificates, if it is not the host's
func Names() []string { return []string{"ca", "cert", "key", "server_name"} }

// Parse reads the options and the files that they name. Scheme is the URL's
// scheme for TLS. Unless the URL has it, which secure says, the configuration
// is nil and any of the options is an error. The configuration asks for TLS 1.2
// at least; ServerName is empty unless it was given. No error has more of a
// file in it than its name.
func Parse(q url.Values, scheme string, secure bool) (*tls.Config, error) {
	if !secure {
		for _, name := range Names() {
			if q.Has(name) {
				return nil, fmt.Errorf("option %s needs the scheme %s", name, scheme)
			}
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: q.Get("server_name")}
	if q.Has("server_name") && c.ServerName == "" {
		return nil, errors.New("option server_name is empty")
	}
	if q.Has("ca") {
		pem, err := os.ReadFile(q.Get("ca"))
		if err != nil {
			return nil, fmt.Errorf("option ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("option ca: %s has no certificate in PEM form", q.Get("ca"))
		}
	}
	if q.Has("cert") != q.Has("key") {
		return nil, errors.New("options cert and key are given together or not at all")
	}
	if q.Has("cert") {
		pair, err := tls.LoadX509KeyPair(q.Get("cert"), q.Get("key"))
		if err != nil {
			return nil, fmt.Errorf("options cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
