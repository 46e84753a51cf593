package driver

import "time"

// Keep returns for how long a store keeps a ticket of this TTL after each
// request: the TTL and a grace of 4 %, so that a holder's claim, which it
// judges itself and which is a little shorter than the TTL, always ends first.
func Keep(ttl time.Duration) time.Duration { return ttl + ttl/25 }

// Epoch is where tokens made from a clock begin: 2025-01-01 UTC.
var Epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// EpochMicro is Epoch in microseconds since 1970, for scripts and SQL.
const EpochMicro int64 = 1735689600_000000

// TokenTick is the unit of tokens made from a clock. A line has to be granted
// more than 40,000 times a second, for as long as it lives, to outrun it; and
// times 256 such a token stays below 2^53, the largest exact integer of
// JavaScript, JSON readers and Lua, until the year 2052.
const TokenTick = 25 * time.Microsecond

// MaxToken is the greatest token that a grant may have. Users see it times 256,
// in 64 bits, so what is above would be less to them than what they have seen.
// The core gives such a grant back, and refuses the lock.
const MaxToken = 1<<56 - 1

// NextToken returns the token of a grant: above the last one, not below the
// floor, and not below the store's clock. The clock is what lets tokens grow
// on when the store has lost its counter, or has an older one.
func NextToken(last, floor uint64, now time.Time) uint64 {
	next := last + 1
	if d := now.Sub(Epoch); d > 0 {
		next = max(next, uint64(d/TokenTick))
	}
	return max(next, floor)
}
