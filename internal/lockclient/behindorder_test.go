package lockclient

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// TestWaitersBehindAnotherKeepTheirOrder lets clients wait for permits at one server, which
// asks its store for one of them at a time. The others have no place at the store; they keep
// their order for several TTLs. One of all permits is handed on inside the server.
func TestWaitersBehindAnotherKeepTheirOrder(t *testing.T) {
	for _, units := range []int{1, 3} {
		for _, gap := range []time.Duration{time.Millisecond, 700 * time.Millisecond, 4 * time.Second} {
			bubble(t, func(w *world) {
				first := []*holdfast.Hold{permitsOf3(t, w.direct(), 1), permitsOf3(t, w.direct(), 2)}
				tokens := make([]uint64, 6)
				var held sync.WaitGroup
				for i := range tokens {
					c := w.client()
					held.Go(func() {
						if h := permitsOf3(t, c, units); h != nil {
							tokens[i] = h.Token()
							time.Sleep(14 * time.Second)
							_ = h.Unlock()
						}
					})
					synctest.Wait()
					time.Sleep(gap)
				}
				time.Sleep(50 * time.Second)
				for _, h := range first {
					if err := h.Unlock(); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second)
				}
				held.Wait()
				if !slices.IsSorted(tokens) {
					t.Errorf("%d units, %v apart: in the order in which they came, the waiters hold by tokens %v", units, gap, tokens)
				}
				time.Sleep(time.Minute)
			})
		}
	}
}

// TestServerWithoutItsStoreKeepsNoWaiterBehindOthers cuts a server off from its store while
// clients wait for permits there, one behind the other: within two TTLs, all of them wait
// at the other server.
func TestServerWithoutItsStoreKeepsNoWaiterBehindOthers(t *testing.T) {
	for _, behind := range []int{1, 2, 5} {
		bubble(t, func(w *world) {
			d := newCuttable(w.store)
			w.startOver(w.hosts[0], d)
			direct := w.direct()
			all := permitsOf3(t, direct, 3)
			var held sync.WaitGroup
			for range 1 + behind {
				c := w.client()
				held.Go(func() {
					if h := permitsOf3(t, c, 1); h != nil {
						_ = h.Unlock()
					}
				})
				synctest.Wait()
			}
			time.Sleep(20 * time.Second)
			d.cut.Store(true)
			time.Sleep(18 * time.Second)
			if info, err := direct.Inspect(context.Background(), "s"); err != nil || len(info.Waiters) == 0 {
				t.Errorf("%d behind: %d wait at the other server after two TTLs, %v", behind, len(info.Waiters), err)
			}
			begun := time.Now()
			_ = all.Unlock()
			held.Wait()
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%d behind: the permits are free, a server serves, and a client waits for %v", behind, took)
			}
			d.cut.Store(false)
			time.Sleep(time.Minute)
		})
	}
}
