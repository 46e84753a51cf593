package broken_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

// Example shows the failure of a store that lets two tickets hold one mutex.
func Example() {
	ctx := context.Background()
	d := broken.New(broken.NewStore("two-holders"))
	defer d.Close()
	for _, id := range []string{"a:1", "b:1"} {
		p, err := d.Join(ctx, &driver.Ticket{ID: id, Name: "n", Units: 1, Limit: 1, TTL: time.Minute}, true)
		fmt.Println(id, p.State, err)
	}
	// Output:
	// a:1 held <nil>
	// b:1 held <nil>
}
