package lockserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast"
)

// group knows the group of the store: 8 hexadecimal digits that servers share exactly if
// their locks exclude each other and ids mean the same.
type group struct {
	client *holdfast.Client
	server string // stands in for the identity of a store that has none
	realm  string

	mu    sync.Mutex
	id    string         // empty until the store has told its identity
	asked *groupQuestion // under way; nil for none
}

// groupQuestion is one question for the store's identity, whose answer all requests of
// the moment wait for.
type groupQuestion struct {
	answered chan struct{}
	err      error // readable once answered is closed
}

// know returns once the group is known. It asks the store until that has answered once.
func (g *group) know(ctx context.Context) error {
	g.mu.Lock()
	if g.id != "" {
		g.mu.Unlock()
		return nil
	}
	q := g.asked
	if q == nil {
		q = &groupQuestion{answered: make(chan struct{})}
		g.asked = q
		go g.ask(q)
	}
	g.mu.Unlock()
	select {
	case <-q.answered:
		return q.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask asks the store for its identity.
func (g *group) ask(q *groupQuestion) {
	ctx, cancel := requestContext(context.Background(), ioTimeout)
	defer cancel()
	id, err := g.client.Identity(ctx)
	if errors.Is(err, holdfast.ErrUnsupported) {
		id, err = g.server, nil // no other server can be known to share it
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", id, g.realm))
		g.id = hex.EncodeToString(sum[:4])
	}
	g.asked, q.err = nil, err
	close(q.answered)
}

// known returns the group, or nothing while the store has not told.
func (g *group) known() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.id
}
