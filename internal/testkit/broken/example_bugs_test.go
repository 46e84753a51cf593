package broken_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

// ExampleBugs shows that each bug names the check that must find it.
func ExampleBugs() {
	for _, b := range broken.Bugs()[:3] {
		fmt.Println(b.Check, b.Name)
	}
	// Output:
	// C1 no owner check on release
	// C1 room for one too many
	// C1 id order without serialised joins
}
