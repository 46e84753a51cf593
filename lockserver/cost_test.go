package lockserver

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
)

// TestGoroutinesOfHoldsAndWaits checks that a hold costs no goroutine, and a wait one. It
// logs what both cost in memory, with their tickets in the store of the same process.
func TestGoroutinesOfHoldsAndWaits(t *testing.T) {
	const n = 500
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, n, "warm")
		measure := func(f func(i int)) (goroutines int, bytes int64) {
			var before, after runtime.MemStats
			synctest.Wait()
			runtime.GC()
			runtime.ReadMemStats(&before)
			begun := runtime.NumGoroutine()
			for i := range n {
				f(i)
			}
			synctest.Wait()
			runtime.GC()
			runtime.ReadMemStats(&after)
			used := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
			return runtime.NumGoroutine() - begun, used / n
		}
		held, heldBytes := measure(func(i int) { w.acquire(s, i, fmt.Sprint(i)) })
		waits, waitBytes := measure(func(i int) { w.acquire(s, n+1+i, fmt.Sprint(i), "wait_ms", "0") })
		t.Logf("%d bytes for a hold, %d for a wait", heldBytes, waitBytes)
		if held > n/10 || waits > n+n/10 {
			t.Errorf("%d goroutines for %d holds, %d for as many waits", held, n, waits)
		}
	})
}
