// Package backoff computes the pauses between the attempts of a request that
// fails.
package backoff

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is a sequence of pauses that grow up to a bound. It is used by one
// goroutine at a time.
type Backoff struct {
	First  time.Duration // the first pause
	Last   time.Duration // the bound; 0 means none
	Factor int           // each pause is this many times the one before; 0 means 2
	Jitter bool          // Next returns a random part of the pause, at least half

	used int // pauses that Next has returned since the last Reset
}

// Pause returns the pause after n others, without jitter. It does not advance the
// sequence.
func (b *Backoff) Pause(n int) time.Duration {
	bound, factor := b.Last, time.Duration(max(b.Factor, 2))
	if bound == 0 {
		bound = math.MaxInt64
	}
	pause := min(b.First, bound)
	for ; n > 0 && pause < bound; n-- {
		if pause > bound/factor {
			return bound
		}
		pause *= factor
	}
	return pause
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	pause := b.Pause(b.used)
	b.used++
	if half := pause / 2; b.Jitter && half > 0 {
		pause = half + rand.N(half)
	}
	return pause
}

// Reset begins the sequence again, after an attempt that succeeded.
func (b *Backoff) Reset() { b.used = 0 }

// Wait blocks for the next pause. It returns false if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) bool {
	timer := time.NewTimer(b.Next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
