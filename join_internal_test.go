package holdfast

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// refusing is a store that answers no Join.
type refusing struct {
	*memlock.Driver
	class driver.Class
}

func (d refusing) Join(context.Context, *driver.Ticket, bool) (driver.Place, error) {
	return driver.Place{}, driver.Errorf(d.class, "no")
}

// However a Join ends, the line is the joiner's until it has said that it sends
// no more. Else the next one begins in between and passes for one that does
// not: its ticket is given to a third while its Join is under way, or left, and
// its answer meets a line without a ticket. A run of many processes died of it.
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
			s := c.spec("n", 2, nil)
			s.key.units = 1
			l, h := c.line(s.key)
			defer c.calls.Done()
			h.wait.spec, h.ctx, h.wait.asked = s, ctx, time.Now()
			l.queue.pushBack(h)
			l.more()
			l.sends = true
			if l.next.tries = tt.tries; tt.tries > 0 {
				stop()
			}
			l.join(ctx, h)
			if l.mu.TryLock() {
				t.Error("the line was free for others before the joiner was done with it")
			}
			l.mu.Unlock()
		})
	}
}
