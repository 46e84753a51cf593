package holdfast

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF16_SuspendEndsTheHold covers F16. The machine sleeps: Go's clock stands
// still, the store's does not.
func TestF16_SuspendEndsTheHold(t *testing.T) {
	for _, look := range []string{"Err", "context", "nobody"} {
		t.Run(look, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slept atomic.Int64
				c, err := newClient(memlock.New(memlock.NewStore()), func() time.Duration { return time.Duration(slept.Load()) })
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				h, err := c.Mutex("a").Lock(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				ctx := h.Context()
				time.Sleep(5 * time.Second)
				// The wall clock has advanced by 40 s, the monotonic clock has
				// not.
				slept.Store(int64(40 * time.Second))
				c.clock.offset.Add(-int64(40 * time.Second))
				switch look {
				case "Err":
					err = h.Err()
				case "context":
					if ctx.Err() != nil {
						err = context.Cause(ctx)
					}
				default:
					time.Sleep(suspendCheck)
					synctest.Wait()
					select {
					case <-ctx.Done():
						err = context.Cause(ctx)
					default:
					}
				}
				if !errors.Is(err, ErrLost) {
					t.Errorf("after a suspend past the lease: %v", err)
				}
			})
		})
	}
}

// TestF105_PlaceOutlastsASuspend checks that a wait that had its place keeps
// the right to go on through a suspend, although the store is silent before and
// after it.
func TestF105_PlaceOutlastsASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		s := memlock.NewStore()
		silent := newSilence(s)
		c, err := newClient(silent, func() time.Duration { return time.Duration(slept.Load()) })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		other, err := New(memlock.New(s))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		h, err := other.Mutex("a").Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			h, err := c.Mutex("a").Lock(context.Background())
			if err == nil {
				err = h.Unlock()
			}
			done <- err
		}()
		synctest.Wait()
		silent.mode.Store(toAll)
		time.Sleep(2 * DefaultTTL) // its place expires
		slept.Store(int64(time.Hour))
		c.clock.offset.Add(-int64(time.Hour))
		silent.mode.Store(toTickets) // the client asks for a new place
		time.Sleep(10 * time.Second)
		silent.mode.Store(toAll)
		time.Sleep(2 * DefaultTTL)
		select {
		case err := <-done:
			t.Fatalf("the wait ended: %v", err)
		default:
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
		silent.mode.Store(toNobody)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// silence is a driver whose store can fall silent.
type silence struct {
	*faults.Hooked
	mode atomic.Int32
}

const (
	toNobody  = iota // the store answers
	toTickets        // the store answers Inspect alone
	toAll
)

func newSilence(s *memlock.Store) *silence {
	d := new(silence)
	d.Hooked = faults.Passing(memlock.New(s), func(ctx context.Context, r *faults.Request) error {
		from := int32(toTickets)
		if r.Op == faults.Inspect {
			from = toAll
		}
		if d.mode.Load() < from {
			return nil
		}
		<-ctx.Done()
		return driver.Wrap(driver.Unknown, ctx.Err())
	})
	return d
}

// TestF17_WallClockStep covers F17. The wall clock steps without a sleep. The
// test checks that nothing is lost.
func TestF17_WallClockStep(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c, err := newClient(memlock.New(memlock.NewStore()), func() time.Duration { return 7 * time.Second })
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			h, err := c.Mutex("a").Lock(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			c.clock.offset.Add(-int64(step))
			time.Sleep(time.Minute)
			if err := h.Err(); err != nil {
				t.Errorf("step of %v: %v", step, err)
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClockOfThisMachine checks that the real clocks of this machine agree with
// Go's, within a tick.
func TestClockOfThisMachine(t *testing.T) {
	var c clock
	before := time.Now()
	c.start(sleptSinceBoot)
	after := time.Now()
	time.Sleep(20 * time.Millisecond)
	least := time.Since(after)
	got := c.now().sub(0)
	if most := time.Since(before); got < least-15*time.Millisecond || got > most+15*time.Millisecond {
		t.Errorf("the clock says %v, want between %v and %v", got, least, most)
	}
}

func FuzzParseHolder(f *testing.F) {
	var b strings.Builder
	newMetaEncoder(&settings{owner: "o", note: "n\x1b<>&"}).write(&b, time.Now())
	f.Add(b.String())
	f.Add(`{"o":"\u001b[2J","h":"` + "\u0085" + `","p":-1,"t":1e300}`)
	f.Add("{\"n\":\"\u202e\u2028\u200b\"}")
	f.Add("null")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range parseHolder(s).String() {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q reaches the terminal", r)
			}
		}
	})
}
