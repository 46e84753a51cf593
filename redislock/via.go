package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// Via returns a driver on another client library than rueidis. It is for the
// packages below this one, such as goredis, which has what users call.
func Via(c link.Client, o *Options) (*Driver, error) {
	s, err := o.setup()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	s.via = c
	return open(ctx, s)
}

// ViaCluster is Via for a cluster.
func ViaCluster(of link.Cluster, o *Options) (*Cluster, error) {
	s, err := o.setup()
	if err != nil {
		return nil, err
	}
	if s.guard != nil {
		return nil, errors.New("redislock: RestartGuard is for a single server")
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	c := newCluster(s.prefix)
	b := &borrowed{c: c, of: of, confirms: s.confirms, known: make(map[string]*lent), moves: make(map[int]move)}
	c.source = b
	d, err := b.owner(ctx, 0)
	if err == nil {
		err = d.greet(ctx)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("redislock: %w", err)
	}
	c.asks.Store(d.asks.Load())
	if err := c.look(ctx, s.picky); err != nil {
		c.Close()
		return nil, fmt.Errorf("redislock: %w", err)
	}
	return c, nil
}

// borrowed is the source of a cluster whose client is the user's: that client
// knows who has which slot.
type borrowed struct {
	c     *Cluster
	of    link.Cluster
	turns atomic.Uint64

	confirms *confirmation

	mu    sync.Mutex
	known map[string]*lent // by name
	moves map[int]move     // what the client may not know yet
}

// lent is a node's client, and the driver on it.
type lent struct {
	client link.Client
	d      *Driver
}

// move is a slot that a node said was elsewhere.
type move struct {
	addr string
	at   time.Time
}

// fresh is how long a move is believed more than the client, which finds out in
// the background.
const fresh = 2 * time.Second

// owner implements source.
func (b *borrowed) owner(ctx context.Context, slot int) (*Driver, error) {
	b.mu.Lock()
	m, moved := b.moves[slot]
	if moved && time.Since(m.at) > fresh {
		delete(b.moves, slot)
		moved = false
	}
	l := b.known[m.addr]
	b.mu.Unlock()
	if moved && l != nil {
		return l.d, nil
	}
	name, client, err := b.of.Owner(ctx, channelOf("", slot))
	if err != nil {
		if ctx.Err() == nil {
			b.of.Reload(ctx)
		}
		return nil, lookErr(err)
	}
	return b.driver(name, client), nil
}

// lookErr gives the failure to find a node its class: nothing was sent.
func lookErr(err error) error {
	if se, ok := errors.AsType[link.ServerError](err); ok {
		return classify(se)
	}
	if errors.Is(err, link.ErrClosed) {
		return classify(err)
	}
	return driver.Errorf(driver.Unavailable, "%w", err)
}

// driver returns the driver of a node.
func (b *borrowed) driver(name string, client link.Client) *Driver {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.known[name]
	if l != nil && l.client == client {
		return l.d
	}
	if l != nil {
		b.c.begin(func() { l.d.Close() })
	}
	l = &lent{client, unchecked(setup{
		via: client, alone: new(alone), prefix: b.c.lines.prefix,
		cluster: true, replaceable: true, channel: b.c.channel, asks: b.c.asks.Load(), confirms: b.confirms,
	})}
	b.known[name] = l
	return l.d
}

// primaries implements source.
func (b *borrowed) primaries(ctx context.Context) ([]*Driver, error) {
	clients, err := b.of.Primaries(ctx)
	if err != nil {
		return nil, lookErr(err)
	}
	var ds []*Driver
	for name, client := range clients {
		ds = append(ds, b.driver(name, client))
	}
	return ds, nil
}

// doubt implements source.
func (b *borrowed) doubt(*Driver) { b.of.Reload(context.Background()) }

// moved implements source.
func (b *borrowed) moved(from *Driver, slot int, addr string) {
	if host, port, ok := strings.Cut(addr, ":"); ok && host == "" {
		b.mu.Lock()
		for name, l := range b.known {
			if l.d == from {
				addr = name[:strings.LastIndexByte(name, ':')+1] + port
			}
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	b.moves[slot] = move{addr, time.Now()}
	b.mu.Unlock()
	b.turns.Add(1)
	b.of.Reload(context.Background())
}

// ahead implements source: the client follows such requests itself, or not.
func (b *borrowed) ahead(context.Context, string) *Driver { return nil }

// epoch implements source.
func (b *borrowed) epoch() uint64 { return b.turns.Load() }

// close implements source.
func (b *borrowed) close() {
	b.mu.Lock()
	known := b.known
	b.known = make(map[string]*lent)
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range known {
		wg.Go(func() { l.d.Close() })
	}
	wg.Wait()
}
