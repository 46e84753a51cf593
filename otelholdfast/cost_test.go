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

// TestEventsCostLittle checks that metrics add at most 150 ns of processor time to an
// uncontended lock in memory, or more on a machine that is slower in all.
func TestEventsCostLittle(t *testing.T) {
	o := otelholdfast.NewProducer(nil).Observer()
	without := cycle(t, locks(t, memlock.NewStore()))
	with := cycle(t, locks(t, memlock.NewStore(), holdfast.WithObserver(o)))
	took, ok := cputime.Within(func(took []time.Duration) bool {
		return took[3]-took[2] <= time.Duration(150*cputime.Slower(took[0]))
	}, cputime.Reference(), events(o), without, with)
	t.Logf("reference %v, events %v, a lock without metrics %v, with metrics %v more", took[0], took[1], took[2], took[3]-took[2])
	if !ok {
		t.Errorf("metrics took %v, want at most %v", took[3]-took[2], time.Duration(150*cputime.Slower(took[0])))
	}
}
