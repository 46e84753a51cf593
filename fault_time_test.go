package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF13_StarvedHolderLearnsOfItsLoss runs on one processor, which eight
// goroutines never give up and the collector uses too, so that in real time
// leases end without a renewal. It checks that no two holds of a name were good
// at one instant, and that tokens grow, however late everything runs.
func TestF13_StarvedHolderLearnsOfItsLoss(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	const ttl = 100 * time.Millisecond
	// good is an interval in which a hold was certainly good: from after Lock
	// had returned to before the last call of Err that returned nil.
	type good struct {
		from, to time.Time
		token    uint64
	}
	var mu sync.Mutex
	var all []good
	lost := 0
	ctx, cancel := context.WithTimeout(bg, 2*time.Second)
	defer cancel()
	s := memlock.NewStore()
	var users, noise sync.WaitGroup
	var over atomic.Bool
	for range 8 {
		noise.Go(func() {
			var waste [][]byte
			for !over.Load() {
				waste = append(waste[:len(waste)%8], make([]byte, 1<<10))
			}
		})
	}
	for range 3 {
		c := client(t, memlock.New(s), holdfast.WithTTL(ttl))
		users.Go(func() {
			for ctx.Err() == nil {
				h, err := c.Mutex("a").Lock(ctx)
				if err != nil {
					continue
				}
				g := good{from: time.Now(), token: h.Token()}
				for end := g.from.Add(rand.N(2 * ttl)); time.Now().Before(end); runtime.Gosched() {
					asked := time.Now()
					if h.Err() != nil {
						break
					}
					g.to = asked
				}
				err = h.Unlock()
				mu.Lock()
				if err != nil {
					lost++
				}
				if g.to.After(g.from) {
					all = append(all, g)
				}
				mu.Unlock()
			}
		})
	}
	users.Wait()
	over.Store(true)
	noise.Wait()
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.from.Before(b.to) && b.from.Before(a.to) {
				t.Errorf("two holds were good at once: token %d for %v, and %d from %v after the first began", a.token, a.to.Sub(a.from), b.token, b.from.Sub(a.from))
			}
			if (a.token < b.token) != a.from.Before(b.from) {
				t.Errorf("token %d came %v after %d", b.token, b.from.Sub(a.from), a.token)
			}
		}
	}
	if len(all) == 0 {
		t.Error("nobody ever held")
	}
	t.Logf("%d holds, %d ended before they were unlocked", len(all), lost)
}

// TestF58_UnlockWhenAnotherHolds unlocks a hold that has ended while another
// client has the lock. It checks that Unlock reports the loss, and that the
// second hold is not affected.
func TestF58_UnlockWhenAnotherHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a").Lock(bg))
		d.cut()
		next := must(t)(other.Mutex("a").Lock(bg))
		d.heal()
		for range 2 {
			wantErr(t, h.Unlock(), holdfast.ErrLost)
		}
		time.Sleep(time.Minute) // lets background work finish
		if err := next.Err(); err != nil {
			t.Errorf("the other hold ended: %v", err)
		}
		if n := tickets(t, other, "a"); n != 1 {
			t.Errorf("%d tickets", n)
		}
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		unlock(t, next)
	})
}

// TestF67_TokensEnd checks a store whose tokens have become too great for a
// user's token, which would be less than earlier ones. Lock refuses the lock
// and gives its ticket back.
func TestF67_TokensEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c := client(t, d)
		last := uint64(driver.MaxToken)
		d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			p, err := next()
			p.Token = last
			last++
			return p, err
		}
		h := must(t)(c.Mutex("a").Lock(bg))
		if h.Token() != driver.MaxToken<<8 {
			t.Errorf("the last token is %d", h.Token())
		}
		unlock(t, h)
		for _, lock := range []func(context.Context) (*holdfast.Hold, error){c.Mutex("a").Lock, c.Mutex("a").TryLock, c.RWMutex("b").RLock} {
			_, err := lock(bg)
			if e, ok := errors.AsType[*holdfast.StoreError](err); !ok || driver.ClassOf(e.Err) != driver.Refused || !strings.Contains(err.Error(), "tokens are at their end") {
				t.Errorf("after the last token: %v", err)
			}
			time.Sleep(time.Second) // the ticket leaves
		}
		for _, name := range []string{"a", "b"} {
			if n := tickets(t, c, name); n != 0 {
				t.Errorf("%d tickets of %s stay", n, name)
			}
		}
	})
}
