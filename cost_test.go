package holdfast_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/memlock"
)

// What the core itself allocates for a Lock and Unlock that meet nobody, and
// with the hold's context. The store's share, one slice of answers, is in it.
func TestAllocations(t *testing.T) {
	c := client(t, memlock.New(memlock.NewStore()))
	m := c.Mutex("a")
	cancellable, cancel := context.WithCancel(bg)
	defer cancel()
	for _, test := range []struct {
		name string
		most float64
		run  func()
	}{
		{"Lock and Unlock", 4, func() { unlock(t, must(t)(m.Lock(bg))) }},
		{"with a context that can end", 4, func() { unlock(t, must(t)(m.Lock(cancellable))) }},
		{"with Context()", 8, func() {
			h := must(t)(m.Lock(bg))
			h.Context()
			unlock(t, h)
		}},
	} {
		if got := testing.AllocsPerRun(200, test.run); got > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.name, got, test.most)
		}
	}
}
