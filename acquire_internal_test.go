package holdfast

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// refusing is a driver that fails every Join with an error of its class.
type refusing struct {
	*memlock.Driver
	class driver.Class
}

func (d refusing) Join(context.Context, *driver.Ticket, bool) (driver.Status, error) {
	return driver.Status{}, driver.Errorf(d.class, "no")
}

// TestJoinerKeepsTheLine checks that the queue belongs to the joiner, however
// its Join ends, until the joiner has announced that it sends no more.
// Otherwise the next joiner starts in between and counts as one without a Join
// in flight: its ticket goes to a third goroutine while its Join is in flight,
// or leaves, and the reply meets a queue without a ticket. A run of many
// processes crashed because of that.
func TestJoinerKeepsTheLine(t *testing.T) {
	for _, tt := range []struct {
		name  string
		d     driver.Driver
		tries int32
	}{
		{"held", memlock.New(memlock.NewStore()), 0},
		{"refused", refusing{memlock.New(memlock.NewStore()), driver.Refused}, 0},
		{"to be repeated", refusing{memlock.New(memlock.NewStore()), driver.Unavailable}, 0},
		{"ended before it was repeated", memlock.New(memlock.NewStore()), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := New(tt.d)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			s := c.spec("n", kindSemaphore, 2, nil)
			s.key.units = 1
			q, h := c.queues.get(s.key)
			defer c.calls.Done()
			h.wait.spec, h.ctx, h.wait.askedAt = s, ctx, time.Now()
			q.waiters.pushBack(h)
			q.ensureJoiner()
			q.waiters.joining = true
			if q.pending.joinsSent = tt.tries; tt.tries > 0 {
				stop()
			}
			h.wait.join(ctx)
			if q.mu.TryLock() {
				t.Error("the line was free for others before the joiner was done with it")
			}
			q.mu.Unlock()
		})
	}
}
