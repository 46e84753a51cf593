package redlock

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// TestErrorOfTooFewNodes checks the error of too few nodes: a node that has not
// answered adds no error, and if a majority refuses, the store does.
func TestErrorOfTooFewNodes(t *testing.T) {
	ns := &nodeSet{all: make([]*node, 3), quorum: 2}
	lost, right := errors.New("lost"), driver.Errorf(driver.Refused, "no right")
	for _, tt := range []struct {
		errs  []error
		class driver.Class
		want  string
	}{
		{nil, driver.Unknown, "outcome unknown: 1 of 3 nodes have confirmed, others have not answered"},
		{[]error{lost}, driver.Unknown, "outcome unknown: 1 of 3 nodes have confirmed: lost"},
		{[]error{lost, right}, driver.Unknown, "outcome unknown: 1 of 3 nodes have confirmed: lost\nrefused: no right"},
		{[]error{lost, right, right}, driver.Refused, "refused: 1 of 3 nodes have confirmed: lost\nrefused: no right\nrefused: no right"},
	} {
		err := ns.short(1, "have confirmed", tt.errs)
		if err.Error() != tt.want || driver.ClassOf(err) != tt.class || errors.Is(err, lost) != (tt.errs != nil) {
			t.Errorf("%v", err)
		}
	}
}
