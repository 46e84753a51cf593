package sim_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/check/sim"
)

// A seed decides what happens in a schedule. In a test,
//
//	synctest.Test(t, func(t *testing.T) { played, err = sim.Play(sim.Plan(seed, false), store) })
//
// plays it.
func ExamplePlan() {
	fmt.Print(sim.Plan(3, true))
	// Output:
	// seed 3: 2 clients × 2 goroutines × 2 calls, 3 names, TTL 10s, requests take up to 2.047638ms, 30% meet a fault
	//      9.474270s ahead: the store's clock by 11.140431s
}
