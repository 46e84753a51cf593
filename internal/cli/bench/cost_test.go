package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestCostsOnRedis counts the allocations of an uncontended lock on Redis, from
// Lock to Unlock, the client library's share included, and the memory that a held
// lock keeps. The target is 8, and 12 with Context(); it is 5, and 8. Under the race detector
// pools forget some of what they are given, so the bounds are wider there; scripts/test
// runs this test without it, too.
func TestCostsOnRedis(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	c, err := OpenHoldfast(t.Context(), Spec{Kind: Holdfast, Server: s.URL(""), TTL: time.Hour}, Seat{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lock := func(name string) Held {
		h, err := c.Lock(ctx, name)
		if err != nil {
			t.Error(err)
			runtime.Goexit()
		}
		return h
	}
	unlock := func(h Held) {
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	}
	for _, test := range []struct {
		what string
		most float64
		run  func()
	}{
		{"Lock and Unlock", 8, func() { unlock(lock("n")) }},
		{"with Context()", 12, func() {
			h := lock("n")
			h.(interface{ Context() context.Context }).Context()
			unlock(h)
		}},
	} {
		got := testing.AllocsPerRun(300, test.run)
		t.Logf("%s: %v allocations", test.what, got)
		if most := test.most * slack; got > most {
			t.Errorf("%s: %v allocations, want at most %v", test.what, got, most)
		}
	}
	// Many at a time share a connection, and a look at their contexts.
	const goroutines, cycles = 16, 100
	var group sync.WaitGroup
	crowd := func() {
		for g := range goroutines {
			group.Go(func() {
				name := fmt.Sprint("n-", g)
				for range cycles {
					unlock(lock(name))
				}
			})
		}
		group.Wait()
	}
	crowd()
	got := math.Inf(1)
	for range 3 { // other load on the machine changes how many goroutines wait together
		allocs := mallocs()
		crowd()
		got = min(got, float64(mallocs()-allocs)/(goroutines*cycles))
	}
	t.Logf("many at a time: %.1f allocations", got)
	if most := 10.0 * slack; got > most {
		t.Errorf("many at a time: %.1f allocations, want at most %v", got, most)
	}

	const n = 2000
	before := heap()
	held := make([]Held, n)
	for i := range held {
		held[i] = lock(fmt.Sprint("held-", i))
		held[i].(interface{ Context() context.Context }).Context()
	}
	each := (heap() - before) / n
	t.Logf("%.0f bytes for each lock that is held", each)
	if each > 1024 {
		t.Errorf("%.0f bytes for each lock that is held", each)
	}
	for _, h := range held {
		unlock(h)
	}
}

// TestCostsOfManyNames counts the allocations of locks with 10,000 names, whose handles
// are made in the call: two more than with a kept handle and one name, one for the
// handle and one for the keys. See TestCostsOnRedis.
func TestCostsOfManyNames(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	c, err := OpenHoldfast(t.Context(), Spec{Kind: Holdfast, Server: s.URL(""), TTL: time.Hour}, Seat{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	names := make([]string, 10000)
	for i := range names {
		names[i] = fmt.Sprint("orders/", i)
	}
	ctx := t.Context()
	i := 0
	cycle := func() {
		h, err := c.Lock(ctx, names[i%len(names)])
		if err == nil {
			err = h.Unlock()
		}
		if err != nil {
			t.Error(err)
			runtime.Goexit()
		}
		i++
	}
	for range maxHandles {
		cycle()
	}
	got := testing.AllocsPerRun(len(names), cycle)
	t.Logf("%v allocations", got)
	if most := 7.0 * slack; got > most {
		t.Errorf("%v allocations, want at most %v", got, most)
	}
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
