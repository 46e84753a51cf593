package holdfast_test

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// answersAfter delays the answer to every Join, and carries the request out at
// once; other requests are not delayed.
func answersAfter(d *hooked, delay func() time.Duration) {
	d.set(func(d *hooked) {
		d.join = func(ctx context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			p, err := next()
			select {
			case <-time.After(delay()):
				return p, err
			case <-ctx.Done():
				return driver.Status{}, ctx.Err()
			}
		}
	})
}

// TestF106_SlowStoreEndsNoLock checks that a store that answers, though more
// slowly than the first bound of a call, does not count as down: a Lock lasts
// as long as its context, holds in the end, and sends few requests.
func TestF106_SlowStoreEndsNoLock(t *testing.T) {
	for _, delay := range []time.Duration{6 * time.Second, 12 * time.Second, 19 * time.Second} {
		bubble(t, func(t *testing.T) {
			d := hook(memlock.NewStore())
			c := client(t, d)
			answersAfter(d, func() time.Duration { return delay })
			for i := range 3 {
				start := time.Now()
				before := d.joins
				ctx, cancel := context.WithTimeout(bg, 2*time.Minute)
				h := must(t)(c.Mutex("a").Lock(ctx))
				cancel()
				if took, asked := time.Since(start), d.joins-before; i == 0 && took > 2*delay+20*time.Second || i > 0 && (took > delay || asked > 1) {
					t.Errorf("answers after %v: Lock %d took %v and asked %d times", delay, i, took, asked)
				}
				unlock(t, h)
			}
		})
	}
}

// TestF106_SlowJoinsAtShortTTL checks the first Join of a slow store at any
// TTL. It ends when the first probe is sent; the reply to that probe proves
// that the store is alive, for the Join too.
func TestF106_SlowJoinsAtShortTTL(t *testing.T) {
	for _, ttl := range []time.Duration{500 * time.Millisecond, time.Second, 7 * time.Second, 29 * time.Second} {
		for range 20 { // chance decides which ends first
			bubble(t, func(t *testing.T) {
				d := hook(memlock.NewStore())
				c := client(t, d, holdfast.WithTTL(ttl))
				answersAfter(d, func() time.Duration { return ttl / 4 })
				start := time.Now()
				ctx, cancel := context.WithTimeout(bg, 40*ttl)
				defer cancel()
				unlock(t, must(t)(c.Mutex("a").Lock(ctx)))
				if took := time.Since(start); took > ttl || d.joins > 3 {
					t.Fatalf("TTL %v: Lock took %v and asked %d times", ttl, took, d.joins)
				}
			})
		}
	}
}

// TestF106_DelaysThatGrowWithLoad checks that a hundred goroutines with clients
// of their own all get their turn at a store that slows down with each request.
func TestF106_DelaysThatGrowWithLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var mu sync.Mutex
		under := 0
		var wg sync.WaitGroup
		for range 100 {
			d := hook(s)
			answersAfter(d, func() time.Duration {
				mu.Lock()
				under++
				delay := time.Duration(under) * 100 * time.Millisecond
				mu.Unlock()
				time.AfterFunc(delay, func() { mu.Lock(); under--; mu.Unlock() })
				return delay
			})
			c := client(t, d)
			wg.Go(func() {
				for range 3 {
					ctx, cancel := context.WithTimeout(bg, 10*time.Minute)
					unlock(t, must(t)(c.Mutex("a").Lock(ctx)))
					cancel()
				}
			})
		}
		wg.Wait()
	})
}

// TestF106_SlowRenewals checks that a renewal that takes longer than a sixth of
// the TTL keeps its hold.
func TestF106_SlowRenewals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		hs := []*holdfast.Hold{must(t)(c.Mutex("a").Lock(bg)), must(t)(c.Mutex("b").Lock(bg))}
		d.set(func(d *hooked) {
			d.renew = func(ctx context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
				ps, err := next()
				select {
				case <-time.After(8 * time.Second):
					return ps, err
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
		answersAfter(d, func() time.Duration { return 8 * time.Second })
		for i := range 10 { // other requests show that the store is slow and not silent
			time.Sleep(ttl / 10)
			if _, err := c.Inspect(bg, "a"); err != nil {
				t.Fatal(i, err)
			}
		}
		time.Sleep(10 * ttl)
		for _, h := range hs {
			if err := h.Err(); err != nil {
				t.Error(err)
			}
			unlock(t, h)
		}
	})
}

// TestF107_NotReadyIsWaitedFor checks that Lock waits for a store that is not
// ready, and tells the Observer why. A Try reports the store at once, and when
// to come back.
func TestF107_NotReadyIsWaitedFor(t *testing.T) {
	for _, after := range []time.Duration{0, 12 * time.Second} {
		bubble(t, func(t *testing.T) {
			d := hook(memlock.NewStore())
			var mu sync.Mutex
			var told []error
			waits := 0
			c := client(t, d, holdfast.WithObserver(&holdfast.Observer{
				LockWait: func(_ context.Context, e holdfast.LockWaitInfo) {
					mu.Lock()
					defer mu.Unlock()
					if e.Err == nil {
						waits++
						return
					}
					told = append(told, e.Err)
					if left := time.Until(e.Until); after == 0 && !e.Until.IsZero() || after > 0 && left != after {
						t.Errorf("the store is not ready for %v more, want %v", left, after)
					}
				},
			}))
			start := time.Now()
			asked := 0
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				asked++
				if rest := 12*time.Second - time.Since(start); rest > 0 {
					return driver.Status{}, driver.NotReady(min(after, rest), "too few nodes take part")
				}
				return next()
			}
			_, err := c.Mutex("a").TryLock(bg)
			se, ok := errors.AsType[*holdfast.StoreError](err)
			if !ok || se.RetryAfter() != after || !se.Unavailable() || time.Since(start) > 0 {
				t.Errorf("TryLock: %v after %v, RetryAfter %v", err, time.Since(start), se.RetryAfter())
			}
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			unlock(t, must(t)(c.Mutex("a").Lock(ctx)))
			if took := time.Since(start); took < 12*time.Second || took > 13100*time.Millisecond {
				t.Errorf("Lock took %v", took)
			}
			if most := map[time.Duration]int{0: 20}[after]; asked > 4+most {
				t.Errorf("asked %d times", asked)
			}
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(told) != 1 || !strings.Contains(told[0].Error(), `acquire "a": store unavailable: too few nodes take part`) {
				t.Errorf("the Observer was told %v", told)
			}
			if waits != 0 {
				t.Errorf("the Observer was told %d times that it is not its turn", waits)
			}
		})
	}
}

// TestF107_RefusalThatPasses checks that a refusal that lasts for a while,
// though other requests are answered, ends no Lock; the context of the Lock
// does.
func TestF107_RefusalThatPasses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		start := time.Now()
		d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			if time.Since(start) < 12*time.Second {
				return driver.Status{}, driver.Errorf(driver.Unavailable, "read only")
			}
			return next()
		}
		ctx, cancel := context.WithTimeout(bg, 9*time.Second)
		defer cancel()
		_, err := c.Mutex("a").Lock(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		unlock(t, must(t)(c.Mutex("a").Lock(bg)))
	})
}

// TestStoreErrors checks that a Lock without a place repeats its request for a
// while at a store that fails, and then reports the failure. If the store
// answers in any way, the Lock repeats its request as long as its context
// allows.
func TestStoreErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		fails := func(err error) *int {
			n := 0
			d.set(func(d *hooked) {
				d.join = func(context.Context, *driver.Ticket, joinFunc) (driver.Status, error) {
					n++
					return driver.Status{}, err
				}
				d.look = func(context.Context, lookFunc) (driver.Queue, error) { return driver.Queue{}, err }
			})
			return &n
		}
		for _, class := range []driver.Class{driver.Unavailable, driver.Unknown, driver.Refused} {
			n := fails(driver.Errorf(class, "no"))
			start := time.Now()
			_, err := c.Mutex("a").Lock(bg)
			took := time.Since(start)
			se, ok := errors.AsType[*holdfast.StoreError](err)
			if !ok || se.Name != "a" || driver.ClassOf(err) != class {
				t.Errorf("%v: %v", class, err)
			}
			if class == driver.Refused && (*n != 1 || took != 0) || class != driver.Refused && (*n < 3 || took > 6*time.Second) {
				t.Errorf("%v: asked %d times in %v", class, *n, took)
			}
		}
		n := fails(driver.Errorf(driver.NotDone, "moved"))
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		_, err := c.Mutex("a").Lock(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		if *n < 10 || *n > 100 {
			t.Errorf("asked %d times in a minute", *n)
		}
		d.heal()
		tries := 0
		d.set(func(d *hooked) {
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				if tries++; tries < 5 {
					return driver.Status{}, driver.Errorf(driver.Unavailable, "failing over")
				}
				return next()
			}
		})
		unlock(t, must(t)(c.Mutex("a").Lock(bg)))
	})
}

// allAnswersAt delays every answer until the instant that at returns, and
// carries requests out at once.
func allAnswersAt(d *hooked, at func() time.Time) {
	wait := func(ctx context.Context) error {
		select {
		case <-time.After(time.Until(at())):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.set(func(d *hooked) {
		d.join = func(ctx context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			p, err := next()
			return p, cmp.Or(wait(ctx), err)
		}
		batch := func(ctx context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
			ps, err := next()
			return ps, cmp.Or(wait(ctx), err)
		}
		d.renew, d.leave = batch, batch
		d.look = func(ctx context.Context, next lookFunc) (driver.Queue, error) {
			q, err := next()
			return q, cmp.Or(wait(ctx), err)
		}
	})
}

// TestF106_EveryAnswerSlowAtShortTTL checks that a store whose every answer
// takes longer than a sixth of a short TTL, probes included, ends no Lock.
func TestF106_EveryAnswerSlowAtShortTTL(t *testing.T) {
	for _, ttl := range []time.Duration{500 * time.Millisecond, time.Second, 3 * time.Second} {
		bubble(t, func(t *testing.T) {
			d := hook(memlock.NewStore())
			c := client(t, d, holdfast.WithTTL(ttl))
			allAnswersAt(d, func() time.Time { return time.Now().Add(ttl / 5) })
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			start := time.Now()
			h := must(t)(c.Mutex("a").Lock(ctx))
			if took := time.Since(start); took > 2*time.Second+ttl {
				t.Errorf("TTL %v: Lock took %v", ttl, took)
			}
			time.Sleep(3 * ttl)
			if err := h.Err(); err != nil {
				t.Errorf("TTL %v: %v", ttl, err)
			}
			_ = h.Unlock()
		})
	}
}

// TestF106_StallEndsNoLockAtShortTTL checks that a store that stands still for
// a moment, as on a busy machine, ends no Lock with a short TTL. A store that
// stays silent is reported in time.
func TestF106_StallEndsNoLockAtShortTTL(t *testing.T) {
	for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second} {
		bubble(t, func(t *testing.T) {
			d := hook(memlock.NewStore())
			c := client(t, d, holdfast.WithTTL(ttl))
			start := time.Now()
			var end atomic.Value
			end.Store(start.Add(1800 * time.Millisecond))
			allAnswersAt(d, func() time.Time { return end.Load().(time.Time) })
			unlock(t, must(t)(c.Mutex("a").Lock(bg)))
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("TTL %v: Lock took %v", ttl, took)
			}
			end.Store(time.Now().Add(time.Hour))
			start = time.Now()
			_, err := c.Mutex("a").Lock(bg)
			if took := time.Since(start); err == nil || took < 2*time.Second || took > 5*time.Second {
				t.Errorf("TTL %v: %v after %v", ttl, err, took)
			}
			end.Store(time.Now())
		})
	}
}

// TestF106_StallEndsNoTryAtShortTTL checks the same for TryLock, which reports a
// silent store after 2 s.
func TestF106_StallEndsNoTryAtShortTTL(t *testing.T) {
	for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second} {
		bubble(t, func(t *testing.T) {
			d := hook(memlock.NewStore())
			c := client(t, d, holdfast.WithTTL(ttl))
			var end atomic.Value
			end.Store(time.Now().Add(1500 * time.Millisecond))
			allAnswersAt(d, func() time.Time { return end.Load().(time.Time) })
			unlock(t, must(t)(c.Mutex("a").TryLock(bg)))
			end.Store(time.Now().Add(time.Hour))
			start := time.Now()
			_, err := c.Mutex("a").TryLock(bg)
			if took := time.Since(start); err == nil || took < 2*time.Second || took > 2500*time.Millisecond {
				t.Errorf("TTL %v: %v after %v", ttl, err, took)
			}
			end.Store(time.Now())
		})
	}
}

// TestF106_RenewalsOfManyHoldsOverlap checks that a client keeps more locks than it can
// renew in time one request after the other, and that it has only a few requests under
// way for that.
func TestF106_RenewalsOfManyHoldsOverlap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		var mu sync.Mutex
		under, most := 0, 0
		d.set(func(d *hooked) {
			d.renew = func(ctx context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
				mu.Lock()
				under++
				most = max(most, under)
				mu.Unlock()
				time.Sleep(ttl / 300)
				mu.Lock()
				under--
				mu.Unlock()
				return next()
			}
		})
		c := client(t, d)
		hs := make([]*holdfast.Hold, 25_000) // 250 requests, of which 200 fit one by one into the time for a renewal
		for i := range hs {
			hs[i] = must(t)(c.Mutex(strconv.Itoa(i)).Lock(bg))
		}
		time.Sleep(5 * ttl)
		lost := 0
		for _, h := range hs {
			if h.Err() != nil {
				lost++
			}
		}
		mu.Lock()
		if lost > 0 || most > 4 {
			t.Errorf("%d of %d holds were lost, with up to %d requests under way", lost, len(hs), most)
		}
		mu.Unlock()
		for _, h := range hs {
			_ = h.Unlock()
		}
	})
}
