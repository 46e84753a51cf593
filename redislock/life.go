package redislock

import (
	"sync"
	"time"
)

// life is how long a driver lasts, and what runs in it.
type life struct {
	mu      sync.Mutex // guards closed against begin
	closed  bool
	done    chan struct{} // closed with the driver
	running sync.WaitGroup
	quiet   chan struct{} // closed when all that ran has ended
}

func (l *life) start() {
	l.done, l.quiet = make(chan struct{}), make(chan struct{})
}

// begin runs f on a goroutine that end waits for; false when it is too late.
func (l *life) begin(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.running.Go(f)
	return true
}

// over says whether the end has begun.
func (l *life) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// finish ends it: it calls f, and waits for what runs, but not longer than two
// seconds. Only the first call does more than wait.
func (l *life) finish(f func()) {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.done)
		go func() {
			f()
			l.running.Wait()
			close(l.quiet)
		}()
	}
	select {
	case <-l.quiet:
	case <-time.After(2 * time.Second):
	}
}
