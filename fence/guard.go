package fence

import (
	"context"
	"errors"
	"sync"
)

// Guard protects one thing that lives in this process. The zero value has seen
// no token. It is safe for concurrent use and must not be copied after its
// first use. A restart of the process resets it: the first token passes,
// whatever it is. A thing that outlives the process needs a guard that does so
// too.
type Guard struct {
	mu       sync.Mutex
	highest  Token
	writing  bool
	reading  int
	released chan struct{} // closed when a Do ends; nil when no Do waits
}

// Check admits the token and remembers it, or refuses it. It does not block.
// The write that follows is a separate step: another holder's Check and write
// may come in between. Use Do to prevent that.
func (g *Guard) Check(t Token) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.admit(t)
}

// Do checks the token and runs write, both in one step. No other Do runs at the
// same time, except that those with shared tokens run together. Do blocks while
// another runs, until ctx ends, and then returns the cause of ctx. It refuses a
// stale token at once, also while another Do runs, and does not call write.
// Otherwise Do returns the error of write. write must end by itself, and must
// not call Do on the same Guard.
func (g *Guard) Do(ctx context.Context, t Token, write func() error) error {
	if err := g.enter(ctx, t); err != nil {
		return err
	}
	defer g.leave(t.Shared)
	return write()
}

// Highest returns the latest token that was admitted and not shared.
func (g *Guard) Highest() Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.highest
}

func (g *Guard) admit(t Token) error {
	if err := Admit(g.highest, t); err != nil {
		return err
	}
	if !t.Shared {
		g.highest = t
	}
	return nil
}

// enter waits until no Do that excludes t is running. It checks the token again
// after each wait, because a later token may have been admitted.
func (g *Guard) enter(ctx context.Context, t Token) error {
	for {
		g.mu.Lock()
		if err := Admit(g.highest, t); err != nil {
			g.mu.Unlock()
			return err
		}
		if ctx.Err() != nil {
			g.mu.Unlock()
			return context.Cause(ctx)
		}
		if !g.writing && (t.Shared || g.reading == 0) {
			if t.Shared {
				g.reading++
			} else {
				g.writing, g.highest = true, t
			}
			g.mu.Unlock()
			return nil
		}
		if g.released == nil {
			g.released = make(chan struct{})
		}
		freed := g.released
		g.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
	}
}

func (g *Guard) leave(shared bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if shared {
		g.reading--
	} else {
		g.writing = false
	}
	if g.released != nil {
		close(g.released)
		g.released = nil
	}
}

// Guards has a Guard for each name. The zero value has none yet. It is safe for
// concurrent use and must not be copied. A used guard is kept, at the cost of
// some 100 bytes and its name, because dropping it would let an old token pass;
// see Forget.
type Guards struct {
	mu     sync.Mutex
	byName map[string]*Guard
}

// Of returns the guard of a name, always the same one.
func (gs *Guards) Of(name string) *Guard {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.byName[name]
	if g == nil {
		if gs.byName == nil {
			gs.byName = make(map[string]*Guard)
		}
		g = new(Guard)
		gs.byName[name] = g
	}
	return g
}

// Check calls Guard.Check for the guard of a name, and adds the name to the
// error.
func (gs *Guards) Check(name string, t Token) error {
	return named(name, gs.Of(name).Check(t))
}

// Do calls Guard.Do for the guard of a name, and adds the name to the error.
func (gs *Guards) Do(ctx context.Context, name string, t Token, write func() error) error {
	return named(name, gs.Of(name).Do(ctx, t, write))
}

// Forget drops the guard of a name, for a thing that is gone for good.
func (gs *Guards) Forget(name string) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	delete(gs.byName, name)
}

// named adds the name to an error of a guard. A write's own error about another
// thing keeps its name.
func named(name string, err error) error {
	if stale, ok := errors.AsType[*StaleError](err); ok && stale == err && stale.Name == "" {
		return &StaleError{Name: name, Given: stale.Given, Highest: stale.Highest}
	}
	return err
}
