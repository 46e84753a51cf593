// Package unanswered bounds the requests that stay under way at a silent store
// although their callers have given up.
package unanswered

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Most is the number of requests that may be under way, given up and without
	// an answer in between, before Full reports true, where Requests has no number
	// of its own.
	Most = 16
	// Every is the longest interval at which Full lets one more request pass, in case
	// that the store answers that one, on another connection for example.
	Every = time.Second
)

// Requests counts the requests on one way to a store, a connection for example,
// that their callers have given up since the store last answered there, and that
// are still under way. While the store answers, however slowly, the count does
// not grow. The zero value is ready.
type Requests struct {
	Most int // 0 means Most

	n atomic.Int32

	mu    sync.Mutex
	turn  int       // counts the answers that made n 0
	since time.Time // when n became that of Most
	next  time.Time // when Full lets another request pass
}

// Full reports whether a further request is not to be sent.
func (r *Requests) Full() bool {
	if r.n.Load() < r.most() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.next) {
		return true
	}
	r.next = now.Add(r.pause(now.Sub(r.since)))
	return false
}

// pause returns the interval until another request passes, when r has been full for a
// time. It is short at first, so that about as many as Most pass soon: a client may have
// many connections that lead nowhere, and each request finds out about one of them.
func (r *Requests) pause(full time.Duration) time.Duration {
	most := time.Duration(r.most())
	return min(Every, max(Every/most, 2*full/most))
}

func (r *Requests) most() int32 { return int32(cmp.Or(r.Most, Most)) }

// GiveUp counts a request that is under way and whose caller has given up. The
// result is for End.
func (r *Requests) GiveUp() (turn int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n.Add(1) == r.most() {
		r.since = time.Now()
		r.next = r.since.Add(r.pause(0))
	}
	return r.turn
}

// End counts a request that was given up as no longer under way.
func (r *Requests) End(turn int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if turn == r.turn {
		r.n.Add(-1)
	}
}

// Answer notes that the store has answered.
func (r *Requests) Answer() {
	if r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n.Store(0)
	r.turn++
}
