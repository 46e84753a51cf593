package cluster

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// node is a server of the cluster.
//
// No mutex is taken under mu.
type node struct {
	addr      string
	connected atomic.Pointer[server.Driver] // nil until it is connected

	mu      sync.Mutex
	dialing *dialing // nil when no dial is under way
	dropped bool
}

type dialing struct {
	done chan struct{}
	err  error
}

// driver returns the node's driver, and connects if there is none.
func (n *node) driver(ctx context.Context, s *topology) (*server.Driver, error) {
	if d := n.connected.Load(); d != nil {
		return d, nil
	}
	n.mu.Lock()
	if n.dropped {
		n.mu.Unlock()
		return nil, server.ErrDropped
	}
	try := n.dialing
	if try == nil {
		try = &dialing{done: make(chan struct{})}
		n.dialing = try
		go n.dial(s, try)
	}
	n.mu.Unlock()
	select {
	case <-try.done:
	case <-ctx.Done():
		return nil, &driver.Error{Class: driver.Unavailable, Err: context.Cause(ctx)}
	}
	if d := n.connected.Load(); d != nil {
		return d, nil
	}
	return nil, try.err
}

// dial connects. It ends within the time-outs of the address, and with the topology.
func (n *node) dial(s *topology, try *dialing) {
	d, err := s.connect(n.addr)
	n.mu.Lock()
	n.dialing = nil
	if try.err = err; err == nil && n.dropped {
		try.err = server.ErrDropped
	} else if err == nil {
		n.connected.Store(d)
		d = nil
	}
	n.mu.Unlock()
	if d != nil {
		d.Close()
	}
	close(try.done)
}

// connect makes the driver of a node.
func (s *topology) connect(addr string) (*server.Driver, error) {
	d, err := s.at.Dial(s.dialCtx, addr, func(l client.Library) (*server.Driver, error) {
		ctx, cancel := context.WithTimeout(s.dialCtx, server.OpenLimit)
		defer cancel()
		return server.Open(ctx, server.Setup{Settings: s.at.Settings, Lib: l, Cluster: true, Replaceable: true, Channel: s.c.Channel, Polls: s.c.Polls.Load()})
	})
	if err != nil && driver.ClassOf(err) == driver.Unknown { // nothing was asked of the node yet
		err = driver.Errorf(driver.Unavailable, "%w", err)
	}
	return d, err
}

// drop ends the connections of a node that is no longer a primary.
func (n *node) drop() {
	n.mu.Lock()
	n.dropped = true
	try := n.dialing
	n.mu.Unlock()
	if try != nil {
		<-try.done
	}
	if d := n.connected.Load(); d != nil {
		d.Close()
	}
}
