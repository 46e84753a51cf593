package etcdlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// lifetime is the time until a driver is closed. It owns the driver's goroutines.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // held while busy grows, or ctx ends; none is taken under it
	busy   sync.WaitGroup
}

func newLifetime() *lifetime {
	ctx, cancel := context.WithCancel(context.Background())
	return &lifetime{ctx: ctx, cancel: cancel}
}

func (l *lifetime) over() bool { return l.ctx.Err() != nil }

func (l *lifetime) checkOpen(ctx context.Context) error {
	if l.over() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// run runs f, which must end with ctx, on a goroutine. It returns false, and does
// nothing, once the driver is closed.
func (l *lifetime) run(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over() {
		return false
	}
	l.busy.Go(f)
	return true
}

// runBriefly runs f as run does, with a context that ends after two seconds.
func (l *lifetime) runBriefly(f func(ctx context.Context)) {
	l.run(func() {
		ctx, cancel := context.WithTimeout(l.ctx, 2*time.Second)
		defer cancel()
		f(ctx)
	})
}

// end ends the goroutines and waits for them. It returns false if another call has
// done that.
func (l *lifetime) end() bool {
	l.mu.Lock()
	first := !l.over()
	l.cancel()
	l.mu.Unlock()
	l.busy.Wait()
	return first
}

// pushes passes what the store reports to the core, until the driver is closed or
// the context of Watch ends.
type pushes struct {
	life *lifetime
	to   atomic.Pointer[listener]
}

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
