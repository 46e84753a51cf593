//go:build linux && !race

package otelholdfast_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/cputime"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

// TestEventsCostLittle bounds the processor time that metrics take of an uncontended lock
// in memory: 100 ns for its three events, or more on a machine that is slower in all, and
// a seventh of the lock with what the client does for them, which is mostly to read its
// clock twice. docs/observability.md has the sum in nanoseconds, of a quiet machine.
func TestEventsCostLittle(t *testing.T) {
	o := otelholdfast.NewProducer(nil).Observer()
	without := cycle(t, locks(t, memlock.NewStore()))
	with := cycle(t, locks(t, memlock.NewStore(), holdfast.WithObserver(o)))
	took, ok := cputime.Within(func(took []time.Duration) bool {
		return took[1] <= time.Duration(100*cputime.Slower(took[0])) && took[3] <= took[2]+took[2]/7
	}, cputime.Reference(), events(o), without, with)
	t.Logf("reference %v, events %v, a lock without metrics %v, with metrics %v more", took[0], took[1], took[2], took[3]-took[2])
	if !ok {
		t.Errorf("events took %v, want at most %v; metrics took %v of a lock, want at most %v",
			took[1], time.Duration(100*cputime.Slower(took[0])), took[3]-took[2], took[2]/7)
	}
}
