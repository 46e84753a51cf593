package drivertest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestCoreUnderFaults checks that the core keeps the guarantees that the seam
// gives to drivers, and its own promise, whatever happens to its requests.
//
// Covers: F1, F2, F3, F4, F8, F9, F10, F14, F15, F50.
func TestCoreUnderFaults(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { coreUnderFaults(t, seed) })
		})
	}
}

func coreUnderFaults(t *testing.T, seed uint64) {
	const ttl = 10 * time.Second
	store := memlock.NewStore()
	var mu sync.Mutex
	var holds []drivertest.Hold
	start := time.Now()
	ms := func(at time.Time) int { return int(at.Sub(start).Milliseconds()) }
	var clients []*holdfast.Client
	var wg sync.WaitGroup
	for i := range uint64(3) {
		plan := faults.Random(seed*3+i, 5, ttl*3/2)
		f := faults.Wrap(memlock.New(store), plan)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("client %d: %v\n%q", i, plan, f.Log())
			}
		})
		c, err := holdfast.New(drivertest.Strict(t, f), holdfast.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		for j := range uint64(4) {
			rnd := rand.New(rand.NewPCG(seed, i<<8|j))
			wg.Go(func() {
				for range 10 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.Int64N(int64(4*ttl))))
					asked := time.Now()
					h, err := c.Mutex("n").Lock(ctx)
					cancel()
					if err != nil {
						continue
					}
					x := drivertest.Hold{ID: fmt.Sprint(i, "/", j), Units: 1, Token: h.Token(), Asked: ms(asked), From: ms(time.Now())}
					// Work as long as the hold is good, at most for a while.
					select {
					case <-h.Context().Done():
					case <-time.After(time.Duration(rnd.Int64N(int64(ttl)))):
					}
					x.To = ms(time.Now())
					mu.Lock()
					holds = append(holds, x)
					mu.Unlock()
					_ = h.Unlock()
					time.Sleep(time.Duration(rnd.Int64N(int64(time.Second))))
				}
			})
		}
	}
	wg.Wait()
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Logf("Close: %v", err)
		}
	}
	drivertest.CheckHistory(t, 1, holds)
	if len(holds) < 20 {
		t.Errorf("only %d of 120 tries held", len(holds))
	}
	time.Sleep(2 * ttl)
	d := memlock.New(store)
	l, err := d.Inspect(context.Background(), "n")
	if err != nil || len(l.Tickets) > 0 {
		t.Errorf("the line is %+v, %v", l, err)
	}
}
