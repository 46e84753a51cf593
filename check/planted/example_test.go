package planted_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/check/planted"
)

// Each bug names the check that has to see it.
func ExampleBugs() {
	for _, b := range planted.Bugs()[:3] {
		fmt.Println(b.Check, b.Name)
	}
	// Output:
	// C1 no owner check on release
	// C1 room for one too many
	// C1 id order without serialised joins
}
