package redlock

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A node that has not answered has no error to show.
func TestTooFewNodes(t *testing.T) {
	d := &Driver{nodes: make([]*node, 3)}
	lost := errors.New("lost")
	for _, tt := range []struct {
		errs []error
		want string
	}{
		{nil, "outcome unknown: 1 of 3 nodes have confirmed, others have not answered"},
		{[]error{lost}, "outcome unknown: 1 of 3 nodes have confirmed: lost"},
	} {
		err := d.short(1, "have confirmed", tt.errs)
		if err.Error() != tt.want || driver.ClassOf(err) != driver.Unknown || errors.Is(err, lost) != (tt.errs != nil) {
			t.Errorf("%v", err)
		}
	}
}
