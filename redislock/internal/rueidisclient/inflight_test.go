package rueidisclient

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestFullConnectionEndsCallsInTime checks that calls for which a connection
// has no place for one more unanswered request end with their contexts as
// others do, whether the calls before them still wait or were given up.
func TestFullConnectionEndsCallsInTime(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	life, end := context.WithCancel(context.Background())
	lib, err := Dial(life, end, Options{Addr: s.Addr(), DialTimeout: 5 * time.Second, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	c := lib.In(client.Life{Begin: func(f func()) bool { running.Go(f); return true }, Done: life.Done()}).(*Client)
	defer func() {
		c.Cut()
		c.Close()
		running.Wait()
	}()
	r := wire.Request{Script: wire.NewScript("return 1"), Full: true}
	const bound, late = 300 * time.Millisecond, 10 * time.Second
	call := func(callers int) {
		t.Helper()
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		start := time.Now()
		for range callers {
			wg.Go(func() {
				if m, err := c.Eval(ctx, r); err == nil {
					t.Errorf("the server answers %v", m)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > late {
			t.Errorf("%d calls with %v to go took %v", callers, bound, took)
		}
	}
	s.Pause(t)
	call(directLimit - 10) // all these requests keep their places; the connection is given up after 5 s
	call(directLimit - 10)
	call(3 * directLimit)
	s.Resume(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, err := c.Eval(ctx, r); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the server does not answer again")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
