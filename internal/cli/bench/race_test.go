//go:build race

package bench

// slack multiplies the bounds on allocations: under the race detector pools forget
// a quarter of what they are given.
const slack = 1.5
