package fence

import (
	"context"
	"errors"
	"sync"
)

// Guard protects one thing that lives in this process. The zero value has seen
// no token. It is safe for concurrent use and must not be copied after its first
// use. It forgets with the process: after a restart the first token passes,
// whatever it is. A thing that outlives the process needs a guard that does.
type Guard struct {
	mu      sync.Mutex
	highest Token
	writing bool
	reading int
	freed   chan struct{} // closed when somebody leaves; nil when nobody waits
}

// Check admits the token or refuses it, and remembers it. It does not block. The
// write that follows is outside of it: between the two another holder's Check
// and write may come. Where that matters, use Do.
func (g *Guard) Check(t Token) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.admit(t)
}

// Do checks the token and runs write, both in one step: no other Do runs beside
// it, except that those with shared tokens run together. It blocks while another
// runs, until ctx ends, and then returns its cause. A refused token is told at
// once, also while another runs, and write is not called. Otherwise Do returns
// what write does. write has to come to an end by itself, and must not call Do
// on the same Guard.
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

// enter waits until nobody is inside who excludes t. The token is judged again
// after each wait, because a later one may have come in.
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
		if g.freed == nil {
			g.freed = make(chan struct{})
		}
		freed := g.freed
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
	if g.freed != nil {
		close(g.freed)
		g.freed = nil
	}
}

// Guards has a Guard for each name. The zero value has none yet. It is safe for
// concurrent use and must not be copied. A guard that was once used stays, at
// some 100 bytes and its name, because one that is dropped lets an old token
// pass; see Forget.
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

// Check is Guard.Check for the guard of a name, and names it in the error.
func (gs *Guards) Check(name string, t Token) error {
	return named(name, gs.Of(name).Check(t))
}

// Do is Guard.Do for the guard of a name, and names it in the error.
func (gs *Guards) Do(ctx context.Context, name string, t Token, write func() error) error {
	return named(name, gs.Of(name).Do(ctx, t, write))
}

// Forget drops the guard of a name: for a thing that is gone for good.
func (gs *Guards) Forget(name string) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	delete(gs.byName, name)
}

// named puts the name into an error of a guard, which has none. A write's own
// error about another thing keeps its name.
func named(name string, err error) error {
	if stale, ok := errors.AsType[*StaleError](err); ok && stale == err && stale.Name == "" {
		return &StaleError{Name: name, Given: stale.Given, Highest: stale.Highest}
	}
	return err
}
