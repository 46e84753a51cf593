package rueidisclient

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// dialed returns a client with connections of its own.
func dialed(t *testing.T, s *servers.RedisServer) *Client {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	lib, err := Dial(life, end, Options{Addr: s.Addr(), DialTimeout: 5 * time.Second, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	c := lib.In(client.Life{Begin: func(f func()) bool { running.Go(f); return true }, Done: life.Done()}).(*Client)
	t.Cleanup(func() {
		c.Cut()
		c.Close()
		running.Wait()
	})
	return c
}

var one = wire.Request{Script: wire.NewScript("return 1"), Full: true}

// eval sends a request that has a second, and must be answered.
func eval(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if m, err := c.Eval(ctx, one); err != nil {
		t.Errorf("%v, %v", m, err)
	}
}

// contend has requests meet.
func contend(t *testing.T, c *Client) {
	t.Helper()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				eval(t, c)
			}
		})
	}
	wg.Wait()
}

// readers returns how many of the open connections have been read by the caller
// of a request that began after since.
func readers(c *Client, since time.Time) (n int) {
	c.loneCall.mu.Lock()
	defer c.loneCall.mu.Unlock()
	for m := range c.loneCall.conns {
		if m.callLimit().After(since.Add(5 * time.Second)) {
			n++
		}
	}
	return n
}

// inCallerSoon sends lone requests until the callers read the answers.
func inCallerSoon(t *testing.T, c *Client) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		since := time.Now()
		eval(t, c)
		if readers(c, since) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the callers of lone requests do not read the answers")
		}
	}
}

// TestLoneRequestsAfterACrowd checks that the answer to a lone request is read by
// its caller, before many requests meet and after, and that a client has one
// connection more then and never a second one.
func TestLoneRequestsAfterACrowd(t *testing.T) {
	c := dialed(t, servers.Redis(t, servers.RedisOptions{}))
	inCallerSoon(t, c)
	for range 3 {
		contend(t, c)
		inCallerSoon(t, c)
		if n := len(c.loneCall.conns); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	}
}

// TestF7_LoneRequestEndsInTime checks that a lone request ends with its context
// although requests have met on the shared connection when nobody counted them:
// after a connection was made.
func TestF7_LoneRequestEndsInTime(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	c := dialed(t, s)
	var wg sync.WaitGroup
	c.loneCall.slow.Store(32) // senders send these requests
	for range 16 {
		wg.Go(func() { eval(t, c) })
	}
	wg.Wait()
	c.loneCall.slow.Store(0)
	s.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := c.Eval(ctx, one)
	if took := time.Since(began); err == nil || took > 2*time.Second {
		t.Errorf("a request with 100 ms to go at a silent server: %v after %v", err, took)
	}
	s.Resume(t)
}

// TestLoneConnThatBreaks checks that lone requests do without the lone connection when it
// cannot be opened, and use it again when it can.
func TestLoneConnThatBreaks(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	c := dialed(t, s)
	contend(t, c)
	inCallerSoon(t, c)
	c.loneCall.mu.Lock()
	var conn *boundConn
	for m := range c.loneCall.conns {
		if !m.callLimit().IsZero() {
			conn = m
		}
	}
	c.loneCall.mu.Unlock()
	conn.Conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	failed := 0
	for range 200 {
		if _, err := c.Eval(ctx, one); err != nil {
			failed++
		}
	}
	if failed > 1 {
		t.Errorf("%d requests failed with the connection's connection, want one", failed)
	}
	inCallerSoon(t, c)
}

// TestLoneConn checks when the connection is opened and closed.
func TestLoneConn(t *testing.T) {
	var l loneConn
	alone := func(n int) (used, opens int) {
		for range n {
			use, open := l.alone()
			if use {
				used++
			}
			if open {
				opens++
			}
		}
		return used, opens
	}
	l.last.Store(-int64(2 * lonePause)) // the process may be younger than a pause
	l.alone()                           // after a pause
	if used, opens := alone(loneFrom); used != 0 || opens != 0 {
		t.Errorf("of the first %d requests %d use the connection and %d open it", loneFrom, used, opens)
	}
	if used, opens := alone(10); used != 0 || opens != 1 {
		t.Errorf("while the connection is opened, %d requests use it and %d open it", used, opens)
	}
	l.opened(true)
	if used, opens := alone(10); used != 10 || opens != 0 {
		t.Errorf("%d of 10 requests use the open connection, %d open it", used, opens)
	}
	for range 100 { // one in 20 meets another
		l.met()
		if used, _ := alone(19); used != 19 {
			t.Fatal("the connection is closed although few requests meet")
		}
	}
	for range loneFrom / meetingCost { // all meet
		l.met()
	}
	if used, opens := alone(loneFrom); used != 0 || opens != 0 {
		t.Errorf("%d requests use the connection after a crowd, %d open it", used, opens)
	}
	if _, opens := alone(1); opens != 1 {
		t.Error("the connection is not opened after a crowd")
	}
	l.opened(false)
	if used, opens := alone(10 * loneFrom); used != 0 || opens != 0 {
		t.Errorf("%d requests use a connection that failed to open, %d open it at once", used, opens)
	}
	l.retry.Store(0)
	if _, opens := alone(1); opens != 1 {
		t.Error("the connection is not opened again")
	}
	l.opened(true)
	l.last.Store(l.last.Load() - int64(2*lonePause))
	if used, _ := alone(loneFrom); used != 0 {
		t.Errorf("%d requests use the connection after a pause", used)
	}
	var group sync.WaitGroup
	var bad atomic.Int32
	for range 8 { // any order leaves a score that opens the connection in the end
		group.Go(func() {
			for range 1000 {
				l.met()
				l.alone()
				if l.score.Load() > loneFrom+8 {
					bad.Add(1)
				}
			}
		})
	}
	group.Wait()
	if bad.Load() > 0 || l.score.Load() < -8*meetingCost {
		t.Errorf("score %d", l.score.Load())
	}
}
