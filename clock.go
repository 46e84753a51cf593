package holdfast

import (
	"sync/atomic"
	"time"
)

// instant is a point on a client's clock: nanoseconds since the client was
// made, counted while the machine runs and while it sleeps.
type instant int64

func (i instant) add(d time.Duration) instant { return i + instant(d) }
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// never is after every instant.
const never = instant(1<<63 - 1)

// clock measures elapsed time for claims. Go's monotonic clock stands still
// while the machine is suspended (golang/go#24595); the store's does not. So
// the time slept is added to it. The wall clock judges nothing, since steps of
// it are no loss of a lock; but wall and monotonic clock drift apart in a
// suspend, so as long as their difference stays the same there is no need to
// ask the operating system again.
type clock struct {
	base    time.Time
	sleptAt time.Duration        // time slept before base
	offset  atomic.Int64         // wall minus monotonic when last asked, ns
	slept   atomic.Int64         // time slept since base, as of then, ns
	asleep  func() time.Duration // time slept since boot
}

func (c *clock) start(asleep func() time.Duration) {
	c.base, c.asleep = time.Now(), asleep
	c.sleptAt = asleep()
	c.offset.Store(c.base.UnixNano())
}

// now is accurate: it notices a suspend that has just ended.
func (c *clock) now() instant {
	t := time.Now()
	mono := t.Sub(c.base)
	off := t.UnixNano() - int64(mono)
	if d := off - c.offset.Load(); d > int64(time.Millisecond) || d < -int64(time.Millisecond) {
		c.slept.Store(int64(max(0, c.asleep()-c.sleptAt)))
		c.offset.Store(off)
	}
	return instant(mono) + instant(c.slept.Load())
}

// wall turns an instant into a time, for people and for timers of callers.
func (c *clock) wall(i instant) time.Time {
	return c.base.Add(i.sub(0) - time.Duration(c.slept.Load()))
}
