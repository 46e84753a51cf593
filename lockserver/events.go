package lockserver

import "time"

// Events receives what happens at a server, for logs, metrics and audits. A nil field
// costs nothing. The functions are called outside of all mutexes, concurrently, on the
// goroutines of requests: one that blocks delays its request.
type Events struct {
	// Request: an answer was sent, or could not be.
	Request func(e RequestInfo)
	// Hold: a hold begins, is resumed, or ends.
	Hold func(e HoldInfo)
	// Denied: a request was refused for its sender or his rights.
	Denied func(e DeniedInfo)
	// Break: a ticket is about to be broken. An error refuses the break, so that none
	// goes unrecorded.
	Break func(e BreakInfo) error
}

// RequestInfo is the event of an answer.
type RequestInfo struct {
	Endpoint string // "POST /v1/acquire"; "other" for a path that the server does not have
	Status   int
	Code     string // of a problem, else empty
	Took     time.Duration
}

// HoldEvent says what happened to a hold.
type HoldEvent string

// The events of holds.
const (
	HoldGranted   HoldEvent = "grant"
	HoldResumed   HoldEvent = "resume"     // found again by an owner check
	HoldReleased  HoldEvent = "release"    // by its client
	HoldLost      HoldEvent = "lost"       // see Reason
	HoldGivenBack HoldEvent = "given_back" // granted, and nothing could be sent to its client
)

// HoldInfo is the event of a hold.
type HoldInfo struct {
	Event     HoldEvent
	Name      string
	Principal string
	Remote    string
	HashedID  string // the owner at the store, which does not tell the id
	Kind      string
	Token     uint64
	Waited    time.Duration // of a grant
	Held      time.Duration // of a hold that ended
	Reason    string        // of a loss: expired, gone, max_hold
}

// DeniedInfo is the event of a refusal.
type DeniedInfo struct {
	Principal string // empty where it is not known
	Remote    string
	Code      string // unauthenticated, forbidden, bad_host, cross_origin
	Err       error
}

// BreakInfo is the event of a break.
type BreakInfo struct {
	Name      string
	Principal string
	Remote    string
	Ticket    string
	Owner     string
}
