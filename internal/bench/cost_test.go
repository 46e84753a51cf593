package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backends"
)

// What a lock on Redis that nobody else wants allocates, from Lock to Unlock,
// the client library's share included, and what one that is held keeps. The
// target is 8, and 12 with Context(): docs/performance.md says what is in the
// way.
func TestCostsOnRedis(t *testing.T) {
	s := backends.Redis(t, backends.RedisOptions{})
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
			t.Fatal(err)
		}
		return h
	}
	unlock := func(h Held) {
		if err := h.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		what string
		most float64
		run  func()
	}{
		{"Lock and Unlock", 15, func() { unlock(lock("n")) }},
		{"with Context()", 19, func() {
			h := lock("n")
			h.(interface{ Context() context.Context }).Context()
			unlock(h)
		}},
	} {
		got := testing.AllocsPerRun(300, test.run)
		t.Logf("%s: %v allocations", test.what, got)
		if got > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.what, got, test.most)
		}
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
	if each > 2048 {
		t.Errorf("%.0f bytes for each lock that is held", each)
	}
	for _, h := range held {
		unlock(h)
	}
}
