package holdfast

import (
	"sync/atomic"
	"time"
)

// instant is a point on a client's clock: nanoseconds since the client was
// made, counted while the machine runs and while it sleeps.
type instant int64

// add returns i + d, or never if the sum is beyond the clock's range.
func (i instant) add(d time.Duration) instant {
	if sum := i + instant(d); d <= 0 || sum >= i {
		return sum
	}
	return never
}

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// never is after every instant.
const never = instant(1<<63 - 1)

// clock measures elapsed time for claims. Go's monotonic clock stands still
// while the machine is suspended (golang/go#24595); the store's clock does not.
// So the time slept is added. The wall clock decides nothing, because a step of
// the wall clock is no loss of a lock. But wall and monotonic clock drift apart
// in a suspend; as long as their difference stays the same, the operating
// system need not be asked again.
type clock struct {
	base        time.Time
	sleptBefore time.Duration        // time slept before base
	offset      atomic.Int64         // wall minus monotonic when last asked, ns
	slept       atomic.Int64         // time slept since base, as of then, ns
	readSlept   func() time.Duration // time slept since boot
}

func (c *clock) start(readSlept func() time.Duration) {
	c.base, c.readSlept = time.Now().Add(-1), readSlept // no instant is 0
	c.sleptBefore = readSlept()
	c.offset.Store(c.base.UnixNano())
}

// now returns the time, and notices a suspend that has just ended.
func (c *clock) now() instant {
	_, now := c.read()
	return now
}

// read returns the wall time and now.
func (c *clock) read() (time.Time, instant) {
	t := time.Now()
	mono := t.Sub(c.base)
	off := t.UnixNano() - int64(mono)
	if d := off - c.offset.Load(); d > int64(time.Millisecond) || d < -int64(time.Millisecond) {
		c.addSleep(c.readSlept() - c.sleptBefore)
		c.offset.Store(off)
	}
	return t, instant(mono) + instant(c.slept.Load())
}

// addSleep adds the time that the machine has slept. Less than a millisecond is
// the distance between two readings, and no sleep. The sum never shrinks: else
// the clock would go back, and a claim that has ended would be valid again.
func (c *clock) addSleep(slept time.Duration) {
	for {
		before := c.slept.Load()
		if int64(slept) < before+int64(time.Millisecond) || c.slept.CompareAndSwap(before, int64(slept)) {
			return
		}
	}
}

// wall turns an instant into a time, for people and for timers of callers.
func (c *clock) wall(i instant) time.Time {
	return c.base.Add(i.sub(0) - time.Duration(c.slept.Load()))
}
