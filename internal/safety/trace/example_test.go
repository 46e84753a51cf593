package trace_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/memlock"
)

// ExampleRecorder records two clients of one store that want the same lock.
func ExampleRecorder() {
	ctx := context.Background()
	store, recorder := memlock.NewStore(), trace.NewRecorder(1)
	ann, bob := recorder.Wrap(memlock.New(store)), recorder.Wrap(memlock.New(store))
	ticket := driver.Ticket{Name: "invoice/42", Units: 1, Limit: 1, TTL: time.Minute}
	a, b := ticket, ticket
	a.ID, b.ID = "ann:1", "bob:1"
	_, _ = ann.Join(ctx, &a, true)
	_, _ = bob.Join(ctx, &b, true)
	for _, e := range recorder.Events() {
		fmt.Println(e.Seq, e.Kind, e.ID, e.State, e.Ahead)
	}
	// Output:
	// 1 join ann:1 held 0
	// 2 join bob:1 waiting 1
}
