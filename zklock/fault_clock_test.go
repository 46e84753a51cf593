package zklock_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF18_F19_ClockSet sets the server's wall clock forward by hours, and back,
// while one ticket holds and another waits. It checks that the holder keeps its
// lock for longer than its TTL each time, that nothing is granted beside it,
// and that tokens grow.
func TestF18_F19_ClockSet(t *testing.T) {
	t.Parallel()
	clock := servers.NewClock(t, t.TempDir())
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Env: clock.Env()})
	const ttl = 2 * time.Second
	a, b := newClient(t, s.URL("", ""), holdfast.WithTTL(ttl)), newClient(t, s.URL("", ""), holdfast.WithTTL(ttl))
	look := raw(t, s.Addrs()...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last uint64
	for _, step := range []time.Duration{0, 3 * time.Hour, -7 * time.Hour} {
		h, err := a.Mutex("n").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if h.Token() <= last {
			t.Errorf("token %d after %d", h.Token(), last)
		}
		clock.Step(t, step)
		if _, err := look.Create("/when", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		_, stat, err := look.Get("/when")
		if err != nil {
			t.Fatal(err)
		}
		if err := look.Delete("/when", -1); err != nil {
			t.Fatal(err)
		}
		// The check compares only the direction of the step, with this
		// process's clock.
		if off := time.Until(time.UnixMilli(stat.Ctime)); (off > time.Hour) != (step > 0) || (off < -time.Hour) != (step < 0) {
			t.Errorf("after a step of %v the server's clock is off by %v", step, off)
		}
		if step != 0 {
			ctx, cancel := context.WithTimeout(ctx, ttl*5/4)
			if _, err := b.Mutex("n").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("beside a holder, after a step of %v: %v", step, err)
			}
			cancel()
		}
		if err := h.Unlock(); err != nil {
			t.Errorf("after a step of %v: %v", step, err)
		}
		next, err := b.Mutex("n").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if next.Token() <= h.Token() {
			t.Errorf("after a step of %v: token %d after %d", step, next.Token(), h.Token())
		}
		last = next.Token()
		if err := next.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// TestF67_TokensEnd checks tokens, which are the server's zxids, at their ends.
// When the zxids pass the end of their low half, at which an ensemble holds a
// new election, tokens grow on. At the last token that a user may have, and at
// the end of the zxids themselves, the lock is refused. No token is less than
// an earlier one.
func TestF67_TokensEnd(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{})
	m := s.Members[0]
	c := newClient(t, s.URL("", ""))
	var last uint64
	turn := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		h, err := c.Mutex("n").Lock(ctx)
		if err != nil {
			return err
		}
		if h.Token() <= last {
			t.Errorf("token %x after %x", h.Token(), last)
		}
		last = h.Token()
		return h.Unlock()
	}
	if err := turn(); err != nil {
		t.Fatal(err)
	}
	const half = math.MaxUint32
	m.Renumber(t, half-20)
	for last>>8 <= half {
		if err := turn(); err != nil {
			t.Fatalf("after %x: %v", last, err)
		}
	}
	for _, end := range []int64{driver.MaxToken, math.MaxInt64} {
		m.Renumber(t, end-40)
		refused := 0
		for i := 0; i < 100 && refused < 12; i++ {
			err := turn()
			if e, ok := errors.AsType[*holdfast.StoreError](err); ok && driver.ClassOf(e.Err) == driver.Refused {
				refused++
			} else if err != nil || refused > 0 {
				t.Fatalf("after %x: %v", last, err)
			}
		}
		if refused == 0 || last>>8 <= half {
			t.Errorf("near %x: %d times refused after %x", end, refused, last)
		}
	}
	if last>>8 > driver.MaxToken || last>>8 < driver.MaxToken-40 {
		t.Errorf("the last token is %x", last)
	}
}
