package checker_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// Example judges two processes that both rely on a lock: the second one has it
// although the first, which was not notified of a loss, holds it until it calls
// Unlock.
func Example() {
	c := checker.NewChecker(checker.Rules{TTL: 1e9, Tokens: true, Takes: 1e9})
	const second = 1e9
	for _, e := range []checker.Event{
		{T: 1 * second, P: 0, N: 1, What: checker.Ask, Name: "m", Units: 1, Limit: 1},
		{T: 1 * second, P: 1, N: 1, What: checker.Ask, Name: "m", Units: 1, Limit: 1},
		{T: 2 * second, P: 0, N: 1, What: checker.Got, Token: 7, End: 9 * second},
		{T: 3 * second, P: 1, N: 1, What: checker.Got, Token: 8, End: 9 * second},
		{T: 4 * second, P: 0, N: 1, What: checker.Out},
		{T: 4 * second, P: 0, N: 1, What: checker.Done},
		{T: 5 * second, P: 1, N: 1, What: checker.Out},
		{T: 5 * second, P: 1, N: 1, What: checker.Done},
	} {
		c.Add(e)
	}
	c.Finish()
	bad, _ := c.Violations()
	for _, v := range bad {
		fmt.Println(v.Check, v.Text)
	}
	fmt.Print(c.Describe(bad[0]))
	// Output:
	// C1 2 of 1 units were held at once, for 1s
	// C5 2 holds that no order of grants and releases explains
	// C1 m at 2.000000: 2 of 1 units were held at once, for 1s
	//     process 0.0 goroutine 0 call 1                  | process 1.0 goroutine 0 call 1
	//     exclusive, 1 of 1                               | exclusive, 1 of 1
	//     asked          0.000000                         | asked          0.000000
	//     got            1.000000 token 7                 | got            2.000000 token 8
	//     claim ends     8.000000                         | claim ends     8.000000
	//     unlock         3.000000                         | unlock         4.000000
	//     unlocked       3.000000                         | unlocked       4.000000
}
