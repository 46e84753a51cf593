package sqlqueue

import (
	"sync/atomic"
	"time"
)

// Instant is a point on the monotonic clock, in nanoseconds since the process
// began. The zero value is before all others.
type Instant int64

var epoch = time.Now()

// InstantOf returns the instant of a time, which has to be of this process.
func InstantOf(t time.Time) Instant { return Instant(t.Sub(epoch)) + 1 }

// Last is the latest of some instants. It may be used by several goroutines. The
// zero value has none yet.
type Last struct{ at atomic.Int64 }

// Record adds an instant.
func (l *Last) Record(t Instant) {
	for was := l.at.Load(); int64(t) > was && !l.at.CompareAndSwap(was, int64(t)); was = l.at.Load() {
	}
}

// Load returns the latest instant.
func (l *Last) Load() Instant { return Instant(l.at.Load()) }
