package redislock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestCrowdAtASilentServer: calls that do not fit into what a connection keeps
// of unanswered requests end with their contexts as others do, whether those
// before them still wait or were given up.
func TestCrowdAtASilentServer(t *testing.T) {
	s := backends.Redis(t, backends.RedisOptions{})
	m := enter(t, s, "")
	const bound, late = 300 * time.Millisecond, 2 * time.Second
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
	m.examinable.(*Driver).crowded.Store(true)
	s.Pause(t)
	call(room - 10) // all of whose requests stay there; the connection is given up after 5 s
	call(room - 10)
	call(3 * room)
	s.Resume(t)
	eventually(t, "the server answers again", func() bool {
		_, err := m.Join(m.ctx(), m.ticket("other"), true)
		return err == nil
	})
}
