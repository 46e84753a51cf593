package driver

import "time"

// Keep returns the time for which a store keeps a ticket of this TTL after each
// request: the TTL and a grace of 4 %, so that the holder's claim, which the
// holder judges itself and which is a little shorter than the TTL, ends first.
func Keep(ttl time.Duration) time.Duration { return ttl + ttl/25 }

// Epoch is the zero of tokens made from a clock: 2025-01-01 UTC.
var Epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// EpochMicro is Epoch in microseconds since 1970, for scripts and SQL.
const EpochMicro int64 = 1735689600_000000

// TokenTick is the unit of tokens made from a clock. A lock would have to be
// granted more than 40,000 times a second, for as long as it lives, to overtake
// the clock. Times 256 such a token stays below 2^53, the largest exact integer
// of JavaScript, JSON readers and Lua, until the year 2052.
const TokenTick = 25 * time.Microsecond

// MaxToken is the greatest token that a grant may have. Users see tokens times
// 256, in 64 bits, so that a greater one would overflow and seem to be smaller.
// The core gives such a grant back, and refuses the lock.
const MaxToken = 1<<56 - 1

// NextToken returns the token of a grant: above the last one, not below the
// minimum, and not below the store's clock. Because of the clock tokens still
// grow after the store lost its counter or went back to an older one.
func NextToken(last, minimum uint64, now time.Time) uint64 {
	next := last + 1
	if d := now.Sub(Epoch); d > 0 {
		next = max(next, uint64(d/TokenTick))
	}
	return max(next, minimum)
}
