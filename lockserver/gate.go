package lockserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// gate decides which requests the server answers at all, and whose they are. It has no
// state.
type gate struct {
	auth   *Auth
	hosts  []string
	cross  *http.CrossOriginProtection
	report func(e DeniedInfo) // nil: nobody listens
}

func newGate(o Options) *gate {
	return &gate{auth: o.Auth, hosts: o.Hosts, cross: http.NewCrossOriginProtection(), report: o.Events.Denied}
}

// identify returns the principal of a request.
func (g *gate) identify(r *http.Request) (Principal, error) {
	if g.auth == nil {
		return localPrincipal, nil
	}
	p, err := g.auth.Identify(r)
	switch {
	case err != nil:
		return Principal{}, err
	case p.Name == "" || len(p.Name) > maxPrincipal || !utf8.ValidString(p.Name) || strings.ContainsFunc(p.Name, unicode.IsControl):
		return Principal{}, fmt.Errorf("lockserver: principal %q: a name has 1 to %d bytes and no control characters", p.Name, maxPrincipal)
	}
	return p, nil
}

// checkOrigin refuses what a browser sends on behalf of a foreign page: requests for a
// host that is not this server (DNS rebinding), and changes from another origin.
func (g *gate) checkOrigin(r *http.Request) *problem {
	if !g.isOwnHost(r.Host) {
		return newProblem(http.StatusForbidden, "bad_host", "the server does not answer for host %q", clip(r.Host))
	}
	if err := g.cross.Check(r); err != nil {
		return newProblem(http.StatusForbidden, "cross_origin", "the request comes from a page of another origin")
	}
	if r.Header.Get("Early-Data") == "1" && r.Method == http.MethodPost {
		return newProblem(http.StatusTooEarly, "too_early", "the request came as early data, which can be replayed")
	}
	return nil
}

// isOwnHost reports whether a Host header names this server.
func (g *gate) isOwnHost(host string) bool {
	name := hostOf(host)
	if len(g.hosts) == 0 {
		return strings.EqualFold(name, "localhost") || isAddress(name)
	}
	return slices.ContainsFunc(g.hosts, func(own string) bool { return strings.EqualFold(own, name) })
}

// denied reports a refusal.
func (g *gate) denied(c *call, p *problem, err error) {
	if g.report != nil {
		g.report(DeniedInfo{Principal: c.who.Name, Remote: c.remote, Code: p.code, Err: err})
	}
}

// unidentified is the problem of a request whose sender nobody knows.
func (g *gate) unidentified(c *call, err error) *problem {
	p := newProblem(http.StatusUnauthorized, "unauthenticated", "the request has no valid token or certificate")
	g.denied(c, p, err)
	return p
}
