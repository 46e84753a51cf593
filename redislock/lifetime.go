package redislock

import (
	"sync"
	"time"
)

// life is the lifetime of a driver, and the goroutines that run in it.
//
// No mutex is taken under mu.
type life struct {
	mu      sync.Mutex // guards closed against begin
	closed  bool
	done    chan struct{} // closed with the driver
	running sync.WaitGroup
	quiet   chan struct{} // closed when all goroutines have ended
}

func (l *life) start() {
	l.done, l.quiet = make(chan struct{}), make(chan struct{})
}

// begin runs f on a goroutine that finish waits for. It returns false if the
// life has ended.
func (l *life) begin(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.running.Go(f)
	return true
}

// over reports whether the end has begun.
func (l *life) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// finish ends the life: it calls f, and waits for the goroutines, but at most
// two seconds. Calls after the first only wait.
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
