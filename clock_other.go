//go:build !linux

package holdfast

import "time"

// sleptSinceBoot is 0 where the operating system has no clock that counts
// suspended time within reach of the standard library.
func sleptSinceBoot() time.Duration { return 0 }
