package checker

import "testing"

// TestOneUndecidedSliceIsNoViolation checks that one undecided slice is
// tolerated, because a short run has few slices and a busy machine may be late
// for one of them. More undecided slices may hide violations.
func TestOneUndecidedSliceIsNoViolation(t *testing.T) {
	for _, tt := range []struct {
		undecided, slices int64
		violations        int
	}{{1, 74, 0}, {1, 1, 0}, {2, 74, 1}, {2, 200, 0}, {3, 200, 1}} {
		c := NewChecker(Rules{})
		c.stats.Undecided, c.stats.Slices = tt.undecided, tt.slices
		c.Finish()
		if got, _ := c.Violations(); len(got) != tt.violations {
			t.Errorf("%d of %d slices undecided: %d violations, want %d", tt.undecided, tt.slices, len(got), tt.violations)
		}
	}
}
