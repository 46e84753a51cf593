package lockauth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lockserver"
)

// Errors of Identify. Their text has nothing of a token.
var (
	// ErrNoCredentials reports a request that has no token and no certificate, and
	// does not come from a Unix peer.
	ErrNoCredentials = errors.New("lockauth: the request has no credentials")
	// ErrUnknown reports credentials that the rules do not have.
	ErrUnknown = errors.New("lockauth: no principal has these credentials")
	// ErrBadHeader reports a token that is given in another way than by one header
	// "Authorization: Bearer TOKEN".
	ErrBadHeader = errors.New("lockauth: a token is given by one header Authorization: Bearer TOKEN")
)

// Identify returns the principal of a request: by its bearer token, or else its
// client certificate, or else the Unix peer that WithUnixPeer has noted. Credentials
// that are given and not known are an error, whatever else the request has. A
// certificate counts if the listener has verified it and it is valid at this moment;
// its URI names, DNS names, or, without any, its common name are looked up. Identify
// does not block. Use it as the field Identify of lockserver.Auth.
func (r *Rules) Identify(req *http.Request) (lockserver.Principal, error) {
	token, err := BearerToken(req)
	switch {
	case err == nil:
		return found(r.byHash[sha256.Sum256([]byte(token))])
	case !errors.Is(err, ErrNoCredentials):
		return lockserver.Principal{}, err
	case req.TLS != nil && len(req.TLS.VerifiedChains) > 0:
		return r.ofCertificate(req.TLS.VerifiedChains[0][0], time.Now())
	}
	uid, ok := UnixPeer(req.Context())
	if !ok {
		return lockserver.Principal{}, ErrNoCredentials
	}
	return found(r.byName[fmt.Sprint(uidPrefix, uid)])
}

func found(p *lockserver.Principal) (lockserver.Principal, error) {
	if p == nil {
		return lockserver.Principal{}, ErrUnknown
	}
	return *p, nil
}

// BearerToken returns the token of a request. It returns ErrNoCredentials if the
// request has no Authorization header, and ErrBadHeader for other authorization
// schemes, several headers, and a token in the URL, where logs would keep it.
func BearerToken(req *http.Request) (string, error) {
	for name := range req.URL.Query() {
		switch strings.ToLower(name) {
		case "token", "access_token", "authorization":
			return "", ErrBadHeader
		}
	}
	given := req.Header.Values("Authorization")
	if len(given) == 0 {
		return "", ErrNoCredentials
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	token = strings.TrimSpace(token)
	if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return "", ErrBadHeader
	}
	return token, nil
}

// ofCertificate returns the principal that a verified certificate names.
func (r *Rules) ofCertificate(cert *x509.Certificate, now time.Time) (lockserver.Principal, error) {
	// A connection can outlast its certificate, which was checked when it began.
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return lockserver.Principal{}, errors.New("lockauth: the client's certificate is not valid at this time")
	}
	var names []string
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	names = append(names, cert.DNSNames...)
	if len(names) == 0 && cert.Subject.CommonName != "" {
		names = []string{cert.Subject.CommonName}
	}
	var is *lockserver.Principal
	for _, name := range names {
		p := r.byCert[name]
		if p != nil && is != nil && p != is {
			return lockserver.Principal{}, fmt.Errorf("lockauth: the client's certificate names two principals, %q and %q", is.Name, p.Name)
		}
		if p != nil {
			is = p
		}
	}
	return found(is)
}

type peerKey struct{}

// WithUnixPeer returns a context that says which user's process is at the other end
// of a Unix socket. A server uses it as its http.Server.ConnContext, with the uid
// that the kernel tells of the connection.
func WithUnixPeer(ctx context.Context, uid uint32) context.Context {
	return context.WithValue(ctx, peerKey{}, uid)
}

// UnixPeer returns the user that WithUnixPeer has noted, and whether it has.
func UnixPeer(ctx context.Context) (uid uint32, ok bool) {
	uid, ok = ctx.Value(peerKey{}).(uint32)
	return uid, ok
}
