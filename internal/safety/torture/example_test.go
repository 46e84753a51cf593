package torture_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/safety/torture"
)

// Example runs a short test on a store in this process, with disturbed
// requests.
func Example() {
	report, err := torture.Run(context.Background(), torture.Config{
		Store: "memory:example", Open: anylock.OpenDriver, Duration: time.Second, TTL: 200 * time.Millisecond,
		Processes: 2, Goroutines: 2, Names: 2, Seed: 1, Slack: 20 * time.Second,
		Faults: []string{torture.Requests},
	})
	fmt.Println(err, report.OK(), report.Grants > 0)
	// Output: <nil> true true
}
