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

	"github.com/holdfast-go/holdfast/memlock"
)

// F16: the machine sleeps; Go's clock stands still, the store's does not.
func TestF16_Suspend(t *testing.T) {
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
				// The wall clock has gone on by 40 s, the monotonic one has not.
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

// F17: the wall clock steps; nothing was slept, so nothing is lost.
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

// The real clocks of this machine agree with Go's, within a tick.
func TestClockOfThisMachine(t *testing.T) {
	var c clock
	c.start(sleptSinceBoot)
	start := time.Now()
	time.Sleep(20 * time.Millisecond)
	if d := c.now().sub(0) - time.Since(start); d < -15*time.Millisecond || d > 15*time.Millisecond {
		t.Errorf("off by %v", d)
	}
}

func FuzzParseHolder(f *testing.F) {
	var b strings.Builder
	newMetaEncoder("o", "n\x1b<>&").write(&b, time.Now())
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
