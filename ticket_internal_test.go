package holdfast

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestClaimEndsBeforeThePlace checks the margins that module Claim of the
// specification has as ticks, in the numbers of the code: with clocks whose rates
// differ by 1 % (A1), a claim ends before the store drops the place, for each TTL
// from the shortest to the longest of any store, and some time is left to report
// the loss.
func TestClaimEndsBeforeThePlace(t *testing.T) {
	const shortest, longest = 10 * time.Millisecond, 10 * 365 * 24 * time.Hour
	for ttl := shortest; ttl < longest; ttl += max(ttl/16, 1) {
		claim := time.Duration(claimEnd(0, ttl))
		kept := driver.Keep(ttl)
		slow := claim + claim/99 // by a store's clock, where the client's is 1 % behind
		if left := kept - slow; left < ttl/50 {
			t.Fatalf("TTL %v: the claim lasts for %v, %v by the store's clock, which keeps the place for %v", ttl, claim, slow, kept)
		}
		if claim < ttl*97/100 {
			t.Fatalf("TTL %v: the claim is only %v", ttl, claim)
		}
	}
}
