package holdfast_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestAllocationsOfUncontendedLocks bounds the allocations of an uncontended Lock and Unlock, and
// those of the hold's context, with and without Observers. The store's share,
// one slice of answers, is included.
func TestAllocationsOfUncontendedLocks(t *testing.T) {
	events := 0
	observer := &holdfast.Observer{
		LockStart: func(ctx context.Context, _ holdfast.LockStartInfo) context.Context { events++; return nil },
		LockWait:  func(context.Context, holdfast.LockWaitInfo) {},
		LockDone:  func(ctx context.Context, _ holdfast.LockDoneInfo) context.Context { events++; return nil },
		HoldDone:  func(context.Context, holdfast.HoldDoneInfo) { events++ },
	}
	testAllocations(t)
	testAllocations(t, holdfast.WithObserver(&holdfast.Observer{}))
	testAllocations(t, holdfast.WithObserver(observer), holdfast.WithObserver(observer))
	if events < 6*200 {
		t.Errorf("%d events", events)
	}
}

func testAllocations(t *testing.T, opts ...holdfast.ClientOption) {
	t.Helper()
	c := client(t, memlock.New(memlock.NewStore()), opts...)
	m := c.Mutex("a")
	cancellable, cancel := context.WithCancel(bg)
	defer cancel()
	for _, test := range []struct {
		name string
		most float64
		run  func()
	}{
		{"Lock and Unlock", 5, func() { unlock(t, must(t)(m.Lock(bg))) }},
		{"with a handle made in the call", 6, func() { unlock(t, must(t)(c.Mutex("a").Lock(bg))) }},
		{"with a context that can end", 5, func() { unlock(t, must(t)(m.Lock(cancellable))) }},
		{"with Context()", 8, func() {
			h := must(t)(m.Lock(bg))
			h.Context()
			unlock(t, h)
		}},
	} {
		if got := testing.AllocsPerRun(200, test.run); got > test.most {
			t.Errorf("%s, %d Observers: %v allocations, want at most %v", test.name, len(opts), got, test.most)
		}
	}
}

// TestAllocationsOfWaits bounds the allocations of a goroutine that waits for
// another one of its process: its hold alone. Channels are reused, but the race
// detector forgets some of them.
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
