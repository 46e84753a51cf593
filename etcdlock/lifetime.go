package etcdlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// lifetime is the time until a driver is closed. It owns the driver's goroutines:
// end waits for them. Its mutex is taken under all others.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelFunc
	busy   sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

func newLifetime() *lifetime {
	ctx, cancel := context.WithCancel(context.Background())
	return &lifetime{ctx: ctx, cancel: cancel}
}

// run runs f, which must end with ctx, on a goroutine. It returns false, and does
// nothing, once the driver is closed.
func (l *lifetime) run(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.busy.Go(f)
	}
	return !l.closed
}

// runBriefly runs f as run does, with a context that ends after two seconds.
func (l *lifetime) runBriefly(f func(ctx context.Context)) {
	l.run(func() {
		ctx, cancel := context.WithTimeout(l.ctx, 2*time.Second)
		defer cancel()
		f(ctx)
	})
}

func (l *lifetime) checkOpen(ctx context.Context) error {
	if l.over() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

func (l *lifetime) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close lets no further goroutine begin. It returns false if the driver was closed
// before.
func (l *lifetime) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.closed
	l.closed = true
	return first
}

// end ends the goroutines and waits for them.
func (l *lifetime) end() {
	l.cancel()
	l.busy.Wait()
}

// pushes passes what the store reports to the core, until the driver is closed or
// the context of Watch ends.
type pushes struct {
	life *lifetime
	to   atomic.Pointer[listener]
}

// listener is the core, as a call of Watch gave it.
type listener struct {
	ctx    context.Context
	notify func(string, driver.Status)
}

// wanted reports whether the core has called Watch.
func (p *pushes) wanted() bool { return p.to.Load() != nil }

// push passes a status to the core. No mutex of the driver may be held.
func (p *pushes) push(id string, s driver.Status) {
	if l := p.to.Load(); l != nil && l.ctx.Err() == nil && !p.life.over() {
		l.notify(id, s)
	}
}
