package redislock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestFullConnectionEndsCallsInTime checks that calls for which a connection
// has no place for one more unanswered request end with their contexts as
// others do, whether the calls before them still wait or were given up.
func TestFullConnectionEndsCallsInTime(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	const bound, late = 300 * time.Millisecond, 10 * time.Second
	call := func(callers int) {
		t.Helper()
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		start := time.Now()
		for range callers {
			k := m.ticket("n")
			wg.Go(func() {
				if p, err := m.Join(ctx, k, true); err == nil {
					t.Errorf("Join says %v", p.State)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > late {
			t.Errorf("%d calls with %v to go took %v", callers, bound, took)
		}
	}
	m.examinable.(*Driver).contended.Store(true)
	s.Pause(t)
	call(directLimit - 10) // all these requests keep their places; the connection is given up after 5 s
	call(directLimit - 10)
	call(3 * directLimit)
	s.Resume(t)
	eventually(t, "the server answers again", func() bool {
		_, err := m.Join(m.ctx(), m.ticket("other"), true)
		return err == nil
	})
}
