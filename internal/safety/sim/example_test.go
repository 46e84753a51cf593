package sim_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/safety/sim"
)

// ExamplePlan prints the events that a seed determines. In a test,
//
//	synctest.Test(t, func(t *testing.T) { played, err = sim.Play(sim.Plan(seed, false), store) })
//
// plays the schedule.
func ExamplePlan() {
	fmt.Print(sim.Plan(3, true))
	// Output:
	// seed 3: 2 clients × 2 goroutines × 2 calls, 3 names, TTL 10s, messages take up to [2.047638ms 25.470499ms] by client, 30% meet a fault
	//     17.332648s restore: of what the store was 4.652991656s before
	//     27.851078s silence of client 0 for 24.448592687s
}
