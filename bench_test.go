package holdfast_test

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

func open(tb testing.TB, s *memlock.Store, opts ...holdfast.ClientOption) *holdfast.Client {
	tb.Helper()
	c, err := holdfast.New(memlock.New(s), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return c
}

func BenchmarkUncontended(b *testing.B) {
	c := open(b, memlock.NewStore())
	m := c.Mutex("bench")
	b.ReportAllocs()
	for b.Loop() {
		h, err := m.Lock(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkContended(b *testing.B) {
	c := open(b, memlock.NewStore())
	m := c.Mutex("bench")
	b.ReportAllocs()
	const workers = 1000
	var wg sync.WaitGroup
	work := make(chan struct{}, b.N)
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	n := 0
	b.ResetTimer()
	for range workers {
		wg.Go(func() {
			for range work {
				h, err := m.Lock(context.Background())
				if err != nil {
					b.Error(err)
					return
				}
				n++
				if err := h.Unlock(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n != b.N {
		b.Fatalf("counted %d, want %d", n, b.N)
	}
}
