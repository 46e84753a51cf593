package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Close ends the client: waits end with ErrClosed, holds end with ErrClosed as
// their cause and are released at the store, and the driver is closed. It
// blocks for at most a third of the client's TTL or 5 s, whichever is less, and
// then for as long as calls of the driver take to notice; no goroutine of the
// client survives it. Holds that could not be released end by their lease, and
// Close returns a *StoreError then. It is idempotent and safe for concurrent
// use, but must not be called from a function given to Do.
func (c *Client) Close() error {
	c.finish.Do(func() { c.result = c.close() })
	return c.result
}

func (c *Client) close() error {
	limit := time.NewTimer(releaseLimit(c.settings.ttl))
	defer limit.Stop()

	c.mu.Lock()
	c.isClosed = true
	close(c.done)
	c.deafen()
	lines := make([]*line, 0, len(c.lines))
	for _, l := range c.lines {
		for ; l != nil; l = l.same {
			lines = append(lines, l)
		}
	}
	c.mu.Unlock()

	for _, l := range lines {
		l.mu.Lock()
		if l.call != nil {
			l.call.stop()
		}
		for h := l.queue.first; h != nil; h = h.next {
			h.rouse()
		}
		l.mu.Unlock()
	}
	for t := range c.keeper.held() {
		t.line.shut(t)
	}
	c.keeper.halt()

	settled := make(chan struct{})
	go func() {
		c.calls.Wait()
		c.cleaner.wait()
		close(settled)
	}()
	var err error
	select {
	case <-settled:
	case <-limit.C:
		err = storeError("close", "", driver.Errorf(driver.Unknown,
			"not all holds were confirmed as released; they end by their lease"))
	}
	c.end()
	<-settled
	c.keeper.wait()
	if e := c.drv.Close(); e != nil && err == nil {
		err = storeError("close", "", e)
	}
	return err
}

// shut ends a hold because the client closes, and leaves its ticket.
func (l *line) shut(t *ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.state != driver.Held {
		return
	}
	over := error(&nameError{name: l.name(), err: ErrClosed})
	for _, h := range t.users.empty() {
		if h.taken && h.end(over) {
			l.c.releaseLine(l)
		} else if !h.taken {
			h.rouse()
		}
	}
	l.discard(t)
}

// held returns the tickets that hold.
func (k *keeper) held() map[*ticket]struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := make(map[*ticket]struct{}, len(k.ends))
	for _, t := range k.ends {
		held[t] = struct{}{}
	}
	return held
}

// halt stops the timer of claims and keeps the goroutine from being started.
func (k *keeper) halt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
	}
	if !k.on {
		k.on = true
		close(k.stopped)
	}
}

// wait returns when the keeper's goroutine has ended.
func (k *keeper) wait() { <-k.stopped }
