//go:build unix

package cli

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/lockserver/lockauth"
)

// identifier finds out who sends a request.
type identifier struct {
	rules *lockauth.File // nil without --auth
	certs *certificates  // nil without TLS
	conns *connections
}

// identify is the field Identify of lockserver.Auth.
func (i *identifier) identify(r *http.Request) (lockserver.Principal, error) {
	p, err := i.principal(r)
	if err == nil {
		i.conns.identified(r.Context())
	}
	return p, err
}

func (i *identifier) principal(r *http.Request) (lockserver.Principal, error) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && r.Header.Get("Authorization") == "" {
		if err := i.certs.state.Load().check(r.TLS); err != nil {
			return lockserver.Principal{}, fmt.Errorf("client certificate: %w", err)
		}
	}
	if i.rules == nil {
		return i.anybody(r)
	}
	p, err := i.rules.Identify(r)
	if uid, ok := lockauth.UnixPeer(r.Context()); ok && isOwnUser(uid) && errors.Is(err, lockauth.ErrUnknown) && r.Header.Get("Authorization") == "" {
		return peer(uid), nil // its processes can change the file as well
	}
	return p, err
}

// anybody returns the principal of a request to a server without --auth.
func (i *identifier) anybody(r *http.Request) (lockserver.Principal, error) {
	if _, err := lockauth.BearerToken(r); !errors.Is(err, lockauth.ErrNoCredentials) {
		return lockserver.Principal{}, errors.New("the request has a token, and the server has no --auth")
	}
	if uid, ok := lockauth.UnixPeer(r.Context()); ok {
		return peer(uid), nil
	}
	return lockserver.Principal{Name: lockserver.LocalName, Grants: []lockserver.Grant{{May: mayLocally}}}, nil
}

// mayLocally are the rights of a principal that no file names.
var mayLocally = []lockserver.Right{lockserver.RightRead, lockserver.RightLock, lockserver.RightMetrics}

// peer returns the principal of a Unix peer that no file names.
func peer(uid uint32) lockserver.Principal {
	may := slices.Clone(mayLocally)
	if isOwnUser(uid) {
		may = append(may, lockserver.RightBreak)
	}
	return lockserver.Principal{Name: fmt.Sprintf("uid:%d", uid), Grants: []lockserver.Grant{{May: may}}}
}

// isOwnUser reports whether a user is that of this process.
func isOwnUser(uid uint32) bool { return int64(uid) == int64(os.Geteuid()) }
