package holdfast_test

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// soon returns a context that bounds a call that would otherwise last for ever.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(bg, time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// TestF110_OnlySemaphoresTakeTheSizeThere checks that WithExistingSize is for
// semaphores: a mutex and a reader beside a semaphore's permit are refused,
// also if the option is the client's.
func TestF110_OnlySemaphoresTakeTheSizeThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s), holdfast.WithExistingSize())
		h := must(t)(a.Semaphore("a", 5).Acquire(bg, 1))
		for name, lock := range map[string]func(context.Context) (*holdfast.Hold, error){
			"Mutex.Lock":       b.Mutex("a").Lock,
			"Mutex.TryLock":    b.Mutex("a").TryLock,
			"RWMutex.TryLock":  b.RWMutex("a").TryLock,
			"RWMutex.TryRLock": b.RWMutex("a").TryRLock,
			"RWMutex.RLock":    b.RWMutex("a").RLock,
		} {
			if h, err := lock(soon(t)); err == nil {
				t.Errorf("%s holds beside a permit of a semaphore: Err %v", name, h.Err())
				unlock(t, h)
			} else {
				wantErr(t, err, holdfast.ErrKindMismatch)
			}
		}
		unlock(t, must(t)(b.Semaphore("a", 3).TryAcquire(bg, 4)))
		unlock(t, h)
		for name, lock := range map[string]func(context.Context) (*holdfast.Hold, error){
			"Mutex":   a.Mutex("m", holdfast.WithExistingSize()).Lock,
			"RWMutex": a.RWMutex("m", holdfast.WithExistingSize()).RLock,
			"Multi": func(ctx context.Context) (*holdfast.Hold, error) {
				_, err := a.Multi([]string{"m"}, holdfast.WithExistingSize()).Lock(ctx)
				return nil, err
			},
		} {
			if _, err := lock(soon(t)); err == nil || !strings.Contains(err.Error(), "WithExistingSize") {
				t.Errorf("%s with WithExistingSize: %v", name, err)
			}
		}
	})
}

// TestF110_PermitsBeyondTheSizeAreRefusedAtOnce checks that no call waits for
// more permits than the queue's size: such a ticket would stay at the head for
// ever.
func TestF110_PermitsBeyondTheSizeAreRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s))
		small := a.Semaphore("s", 8, holdfast.WithExistingSize())
		refused := func(when string, want int) {
			t.Helper()
			for _, take := range []func(context.Context, int) (*holdfast.Hold, error){small.Acquire, small.TryAcquire} {
				if _, err := take(soon(t), 10); err == nil || !strings.Contains(err.Error(), "the semaphore has 8") {
					t.Errorf("10 of 8 permits, %s: %v", when, err)
				}
			}
			if n := tickets(t, b, "s"); n != want {
				t.Errorf("%d tickets stay, want %d", n, want)
			}
		}
		refused("on an idle name", 0)
		h := must(t)(b.Semaphore("s", 8).TryAcquire(bg, 1))
		refused("on a line of 8", 1)
		unlock(t, h)

		// The queue's size is greater, so Acquire waits for them.
		big := b.Semaphore("s", 12)
		h = must(t)(big.Acquire(bg, 5))
		_, err := small.TryAcquire(bg, 10)
		wantErr(t, err, holdfast.ErrHeld)
		got := make(chan *holdfast.Hold)
		go func() { got <- must(t)(small.Acquire(bg, 10)) }()
		synctest.Wait()
		unlock(t, h)
		unlock(t, <-got)
		unlock(t, must(t)(small.TryAcquire(bg, 8)))
	})
}

// TestF110_SizeRolledDownUnderAWideWaiter reduces the size below the permits
// that a waiter asks for. It checks that the waiter is refused when it joins
// anew, and that the others go on.
func TestF110_SizeRolledDownUnderAWideWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		hooks := hook(s)
		a, b := client(t, hooks), client(t, memlock.New(s))
		holder := must(t)(b.Semaphore("s", 10).Acquire(bg, 1))
		wide := make(chan error, 1)
		go func() {
			_, err := a.Semaphore("s", 10, holdfast.WithExistingSize()).Acquire(soon(t), 10)
			wide <- err
		}()
		synctest.Wait()
		l, err := b.Inspect(bg, "s")
		if err != nil || len(l.Waiters) != 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		// The queue's size becomes 8 before the waiter has a new place in it.
		d := memlock.New(s)
		changed := make(chan struct{})
		hooks.set(func(d *hooked) {
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				<-changed
				return next()
			}
		})
		for _, e := range slices.Concat(l.Waiters, l.Holders) { // the holder last: otherwise the waiter would be granted
			if err := d.Break(bg, "s", e.ID); err != nil {
				t.Fatal(err)
			}
		}
		p, err := d.Join(bg, &driver.Ticket{ID: "x:1", Name: "s", Units: 1, Limit: 8, TTL: ttl}, true)
		if err != nil || p.State != driver.Held {
			t.Fatalf("%+v, %v", p, err)
		}
		close(changed)
		wantErr(t, <-wide, holdfast.ErrKindMismatch)
		wantErr(t, holder.Unlock(), holdfast.ErrLost)
		unlock(t, must(t)(b.Semaphore("s", 8).TryAcquire(bg, 7)))
	})
}

// TestF110_LongestDurations checks that the longest possible durations keep
// their meaning.
func TestF110_LongestDurations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
			h := must(t)(c.Mutex("a", holdfast.WithMaxHold(d)).Lock(bg))
			ctx := h.Context()
			time.Sleep(time.Hour)
			if h.Err() != nil || ctx.Err() != nil {
				t.Errorf("a hold of at most %v ended: %v", d, h.Err())
			}
			if left := time.Until(h.Deadline()); left < 0 || left > ttl {
				t.Errorf("its deadline is in %v", left)
			}
			_ = h.Unlock()
		}
	})
}

// limited is a store with other bounds of the TTL.
type limited struct {
	driver.Driver
	min, max time.Duration
}

func (d limited) Traits() driver.Traits {
	t := d.Driver.Traits()
	t.MinTTL, t.MaxTTL = d.min, d.max
	return t
}

// TestF132_DefaultWithinTheStoresLimits checks that the default TTL is brought
// within the store's bounds, and that a given TTL outside of them is refused.
func TestF132_DefaultWithinTheStoresLimits(t *testing.T) {
	for name, x := range map[string]struct{ min, max, want time.Duration }{
		"short sessions": {time.Second, 9 * time.Second, 9 * time.Second},
		"long ticks":     {40 * time.Second, 10 * time.Minute, 40 * time.Second},
		"one session":    {11520 * time.Millisecond, 12 * time.Second, 12 * time.Second},
		"wide":           {time.Second, time.Hour, holdfast.DefaultTTL},
		"without an end": {time.Second, 0, holdfast.DefaultTTL},
	} {
		t.Run(name, func(t *testing.T) {
			open := func() driver.Driver { return limited{memlock.New(memlock.NewStore()), x.min, x.max} }
			c := client(t, open())
			if got := c.TTL(); got != x.want {
				t.Errorf("TTL %v, want %v", got, x.want)
			}
			h := must(t)(c.Mutex("a").Lock(bg))
			if left := time.Until(h.Deadline()); left > x.want || left < x.want*9/10 {
				t.Errorf("a lease of %v, want %v", left, x.want)
			}
			unlock(t, h)
			for _, named := range []time.Duration{holdfast.DefaultTTL, x.min - 1, x.max + 1} {
				legal := named >= x.min && (x.max == 0 || named <= x.max)
				c, err := holdfast.New(open(), holdfast.WithTTL(named))
				if (err == nil) != legal {
					t.Errorf("New with a TTL of %v: %v", named, err)
				}
				if err == nil {
					if c.TTL() != named {
						t.Errorf("TTL %v, want that named, %v", c.TTL(), named)
					}
					_ = c.Close()
				}
			}
		})
	}
}

// TestClientOptionIsNoOption checks the types of the options: a value that is not
// an Option does not compile as the option of a lock.
func TestClientOptionIsNoOption(t *testing.T) {
	lock := reflect.TypeFor[holdfast.Option]()
	for _, x := range []struct {
		option  any
		forLock bool
	}{
		{holdfast.WithPrefix, false}, {holdfast.WithObserver, false},
		{holdfast.WithTTL, true}, {holdfast.WithMaxHold, true}, {holdfast.WithMaxWait, true}, {holdfast.WithOwner, true},
		{holdfast.WithNote, true}, {holdfast.WithExistingSize, true},
	} {
		f := reflect.TypeOf(x.option)
		if got := f.Out(0).Implements(lock); got != x.forLock {
			t.Errorf("%v: an option of locks: %v", f, got)
		}
		if !f.Out(0).Implements(reflect.TypeFor[holdfast.ClientOption]()) {
			t.Errorf("%v: no option of clients", f)
		}
	}
}
