package holdfast_test

import (
	"context"
	"runtime"
	"sync"
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
		{"Lock and Unlock", 5, func() { unlock(t, must(t)(m.Lock(bg))) }},
		{"with a context that can end", 5, func() { unlock(t, must(t)(m.Lock(cancellable))) }},
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

// What a goroutine that waits for another of its process allocates: its hold.
// Channels are used again, but the race detector forgets some of them.
func TestAllocationsOfWaits(t *testing.T) {
	c := client(t, memlock.New(memlock.NewStore()))
	m := c.Mutex("a")
	const goroutines, cycles = 50, 40
	var group sync.WaitGroup
	crowd := func() uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range goroutines {
			group.Go(func() {
				for range cycles {
					h, err := m.Lock(bg)
					if err != nil {
						t.Error(err)
						return
					}
					runtime.Gosched() // so that the others queue
					unlock(t, h)
				}
			})
		}
		group.Wait()
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	crowd()
	got := float64(crowd()) / (goroutines * cycles)
	t.Logf("%.2f allocations", got)
	if got > 1.9 {
		t.Errorf("%.2f allocations for each Lock, want at most 1.9", got)
	}
}
