package server

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// LastAnswer is the time of the last answer of the servers that elect a
// primary: Sentinels, or the nodes of a cluster.
type LastAnswer struct{ at atomic.Pointer[time.Time] }

// electionWindow is the time for which such an answer counts: the electors are
// asked after each request that fails.
const electionWindow = 10 * time.Second

const (
	// DiscoveryTimeout bounds the time in which a node returns the owners of
	// the slots, or a Sentinel the primary.
	DiscoveryTimeout = time.Second
	// DiscoveryBackoff is the time between two rounds of such requests.
	DiscoveryBackoff = 100 * time.Millisecond
	// MaxHops bounds how often one request is sent on to the present server.
	MaxHops = 4
)

// Note notes an answer.
func (h *LastAnswer) Note() {
	now := time.Now()
	h.at.Store(&now)
}

// DuringElection turns the error of an unreachable primary into one that
// passes, as long as the electors answer: then the store is there, but has no
// primary yet.
func (h *LastAnswer) DuringElection(err error) error {
	if _, ok := driver.IsNotReady(err); ok || err == nil || driver.ClassOf(err) != driver.Unavailable {
		return err
	}
	if at := h.at.Load(); at == nil || time.Since(*at) > electionWindow {
		return err
	}
	return driver.NotReady(0, "%w", err)
}
