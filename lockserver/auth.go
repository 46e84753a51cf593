package lockserver

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Auth finds out who sends a request. Its functions are called for each request, so
// that a change takes effect at once: the holds of a principal that has lost its
// rights run out. They may be called concurrently.
type Auth struct {
	// Identify returns the principal of a request. An error answers 401
	// (unauthenticated); its text goes to Events.Denied and not to the client.
	Identify func(r *http.Request) (Principal, error)
}

// check refuses an Auth that identifies nobody.
func (a *Auth) check() error {
	if a != nil && a.Identify == nil {
		return errors.New("lockserver: Auth without Identify")
	}
	return nil
}

// Principal is the sender of a request.
type Principal struct {
	// Name has 1 to 256 bytes without control characters. Others see it as a
	// holder's; ids of two principals never meet.
	Name string
	// Grants are the rights. A principal may do what any of them allows.
	Grants []Grant
}

// Grant is an allow list for the names that begin with a prefix.
type Grant struct {
	Prefix string // bytes; empty: all names
	May    []Right
	// Waiters bounds how many requests of the principal wait for names with this
	// prefix; 0 is the server's limit.
	Waiters int
	// MaxHold bounds how long one hold lasts; 0 is no bound.
	MaxHold time.Duration
}

// Right is something that a principal may do with a name.
type Right string

// The rights.
const (
	RightRead  Right = "read"  // see holders and waiters
	RightLock  Right = "lock"  // acquire, renew, release
	RightBreak Right = "break" // remove a ticket of another
	// RightMetrics with the empty prefix is the right to GET /metrics, which has counts
	// of all names together.
	RightMetrics Right = "metrics"
)

// LocalName is the principal of every request where Options.Auth is nil. It may read,
// lock and see metrics, and may not break.
const LocalName = "local"

var localPrincipal = Principal{Name: LocalName, Grants: []Grant{{May: []Right{RightRead, RightLock, RightMetrics}}}}

// maxPrincipal is the longest name of a principal, in bytes.
const maxPrincipal = 256

// grantOf returns the grant that gives p a right to a name: of several, the one with
// the longest prefix.
func (p *Principal) grantOf(right Right, name string) (best Grant, ok bool) {
	for _, g := range p.Grants {
		if strings.HasPrefix(name, g.Prefix) && slices.Contains(g.May, right) && (!ok || len(g.Prefix) > len(best.Prefix)) {
			best, ok = g, true
		}
	}
	return best, ok
}

// boundsOf returns the prefixes of the grants that bound how many requests wait for a name.
func (p *Principal) boundsOf(name string) (prefixes []string) {
	for _, g := range p.Grants {
		if g.Waiters > 0 && strings.HasPrefix(name, g.Prefix) && slices.Contains(g.May, RightLock) && !slices.Contains(prefixes, g.Prefix) {
			prefixes = append(prefixes, g.Prefix)
		}
	}
	return prefixes
}

// may reports whether p has a right to a name.
func (p *Principal) may(right Right, name string) bool {
	_, ok := p.grantOf(right, name)
	return ok
}
