package faults

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Gate is a point that requests pass, and at which they wait while it is shut. The zero
// Gate is open.
type Gate struct {
	mu    sync.Mutex
	shuts int           // calls of Shut for which the gate is shut
	open  chan struct{} // closed when it opens; nil while it is open
}

// Shut shuts the gate until the function that it returns is called, or Open. A gate that
// was shut several times opens with the last of these functions.
func (g *Gate) Shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
	g.shuts++
	shut := g.open
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.open != shut {
			return
		}
		if g.shuts--; g.shuts == 0 {
			g.openLocked()
		}
	})
}

// Open opens the gate, however often it was shut.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		g.openLocked()
	}
}

func (g *Gate) openLocked() {
	close(g.open)
	g.open, g.shuts = nil, 0
}

// IsShut reports whether the gate is shut.
func (g *Gate) IsShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open != nil
}

// Pass waits until the gate is open. If ctx ends first, it returns an error of the class
// Unknown.
func (g *Gate) Pass(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return nil
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return driver.Wrap(driver.Unknown, context.Cause(ctx))
	}
}
