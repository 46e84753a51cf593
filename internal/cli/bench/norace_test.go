//go:build !race

package bench

// slack multiplies the bounds on allocations, which are exact without the race
// detector.
const slack = 1
