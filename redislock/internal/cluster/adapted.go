package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Adapt makes a cluster of the user's client.
func (c *Cluster) Adapt(ctx context.Context, of client.Cluster, s server.Settings) error {
	c.start(s.Prefix)
	b := &adapted{c: c, lib: of, settings: s, nodes: make(map[string]*adaptedNode), moves: make(map[int]move)}
	c.source = b
	d, err := b.owner(ctx, 0)
	if err == nil {
		err = d.Greet(ctx)
	}
	if err == nil {
		c.Polls.Store(d.Polls.Load())
		err = c.CheckPrimaries(ctx, func(d *server.Driver) error { return d.CheckServer(ctx, s.RefuseEviction) })
	}
	if err != nil {
		c.Close()
	}
	return err
}

// adapted is the source of a cluster whose client is the user's: that client
// knows the owners of the slots.
//
// Under mu, only the mutex of the cluster's life is taken.
type adapted struct {
	c       *Cluster
	lib     client.Cluster
	version atomic.Uint64

	settings server.Settings

	mu    sync.Mutex
	nodes map[string]*adaptedNode // by name
	moves map[int]move            // moves that the client may not know yet
}

// adaptedNode is a node's client, and the driver on that client.
type adaptedNode struct {
	lib client.Library
	d   *server.Driver
}

// move is a redirection: the address that a node gave for a slot.
type move struct {
	addr string
	at   time.Time
}

// moveLifetime is the time for which a move takes precedence over the client,
// which finds out in the background.
const moveLifetime = 2 * time.Second

// owner implements source.
func (b *adapted) owner(ctx context.Context, slot int) (*server.Driver, error) {
	b.mu.Lock()
	m, moved := b.moves[slot]
	if moved && time.Since(m.at) > moveLifetime {
		delete(b.moves, slot)
		moved = false
	}
	l := b.nodes[m.addr]
	b.mu.Unlock()
	if moved && l != nil {
		return l.d, nil
	}
	name, library, err := b.lib.Owner(ctx, wire.ChannelOf("", slot))
	if err != nil {
		if ctx.Err() == nil {
			b.lib.Reload(ctx)
		}
		return nil, ownerErr(err)
	}
	return b.driver(name, library), nil
}

// ownerErr gives the failure to find a node its class: nothing was sent.
func ownerErr(err error) error {
	if se, ok := errors.AsType[wire.ServerError](err); ok {
		return server.Classify(se)
	}
	if errors.Is(err, client.ErrClosed) {
		return server.Classify(err)
	}
	return driver.Errorf(driver.Unavailable, "%w", err)
}

// driver returns the driver of a node.
func (b *adapted) driver(name string, library client.Library) *server.Driver {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.nodes[name]
	if l != nil && l.lib == library {
		return l.d
	}
	if l != nil {
		b.c.life.Begin(func() { l.d.Close() })
	}
	l = &adaptedNode{library, server.Unchecked(server.Setup{
		Settings: b.settings, Lib: library,
		Cluster: true, Replaceable: true, Channel: b.c.Channel, Polls: b.c.Polls.Load(),
	})}
	b.nodes[name] = l
	return l.d
}

// primaries implements source.
func (b *adapted) primaries(ctx context.Context) ([]*server.Driver, error) {
	libraries, err := b.lib.Primaries(ctx)
	if err != nil {
		return nil, ownerErr(err)
	}
	var ds []*server.Driver
	for name, library := range libraries {
		ds = append(ds, b.driver(name, library))
	}
	return ds, nil
}

// refresh implements source.
func (b *adapted) refresh(*server.Driver) { b.lib.Reload(context.Background()) }

// noteMoved implements source.
func (b *adapted) noteMoved(from *server.Driver, slot int, addr string) {
	if host, port, ok := strings.Cut(addr, ":"); ok && host == "" {
		b.mu.Lock()
		for name, l := range b.nodes {
			if l.d == from {
				addr = name[:strings.LastIndexByte(name, ':')+1] + port
			}
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	b.moves[slot] = move{addr, time.Now()}
	b.mu.Unlock()
	b.version.Add(1)
	b.lib.Reload(context.Background())
}

// askTarget implements source. It returns nil: whether such requests are
// followed is up to the client.
func (b *adapted) askTarget(context.Context, string) *server.Driver { return nil }

// duringElection implements source. It changes nothing, because the client's
// own requests are not seen here.
func (b *adapted) duringElection(err error) error { return err }

// epoch implements source.
func (b *adapted) epoch() uint64 { return b.version.Load() }

// close implements source.
func (b *adapted) close() {
	b.mu.Lock()
	known := b.nodes
	b.nodes = make(map[string]*adaptedNode)
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range known {
		wg.Go(func() { l.d.Close() })
	}
	wg.Wait()
}
