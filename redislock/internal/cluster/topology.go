package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// topology is the source of a cluster whose connections are the driver's own.
// It asks the nodes for the owners of the slots.
//
// Under mu, only the mutex of the cluster's life is taken.
type topology struct {
	c  *Cluster
	at Config // how to reach nodes

	dialCtx  context.Context // of connections that are made; close ends it by endDials
	endDials context.CancelFunc

	table      atomic.Pointer[slotTable]
	version    atomic.Uint64
	lastAnswer server.LastAnswer // time of the last answer of a node about the slots

	mu           sync.Mutex
	nodes        map[string]*node // by address
	replicas     []string         // which know the slots as well
	refreshing   bool             // askAll runs
	refreshAgain bool             // askAll is to run once more
	suspect      string           // the node that is asked last
	closed       bool
}

// slotTable has the node of each slot.
type slotTable struct {
	owner     [wire.Slots]*node
	primaries []*node
	id        string // of the node that has the first slot
}

func newTopology(c *Cluster, at Config) *topology {
	s := &topology{c: c, at: at, nodes: make(map[string]*node)}
	s.dialCtx, s.endDials = context.WithCancel(context.Background())
	return s
}

// askHosts asks the hosts of the URL, one after the other.
func (s *topology) askHosts(ctx context.Context) error {
	var err error
	for i, host := range s.at.Hosts {
		var d *server.Driver
		if d, err = s.node(host).driver(ctx, s); err == nil {
			if i == 0 || s.table.Load() == nil {
				s.c.Polls.Store(d.Polls.Load())
			}
			if err = s.ask(ctx, d); err == nil {
				s.dropFormer()
				return nil
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

func (s *topology) node(addr string) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[addr]
	if n == nil {
		n = &node{addr: addr, dropped: s.closed}
		s.nodes[addr] = n
	}
	return n
}

// owner implements source.
func (s *topology) owner(ctx context.Context, slot int) (*server.Driver, error) {
	n := s.table.Load().owner[slot]
	if n == nil {
		s.refresh(nil)
		return nil, driver.NotReady(0, "no node of the cluster has slot %d", slot)
	}
	d, err := n.driver(ctx, s)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.refreshSuspecting(n.addr)
	}
	return d, err
}

// primaries implements source.
func (s *topology) primaries(ctx context.Context) ([]*server.Driver, error) {
	var ds []*server.Driver
	for _, n := range s.table.Load().primaries {
		d, err := n.driver(ctx, s)
		if err != nil {
			return nil, err
		}
		ds = append(ds, d)
	}
	return ds, nil
}

// noteMoved implements source.
func (s *topology) noteMoved(from *server.Driver, slot int, addr string) {
	n := s.node(s.completeAddr(from, addr))
	s.mu.Lock()
	next := *s.table.Load()
	next.owner[slot] = n
	if !slices.Contains(next.primaries, n) {
		next.primaries = append(slices.Clone(next.primaries), n)
	}
	s.installLocked(&next)
	s.mu.Unlock()
	s.refresh(nil)
}

// askTarget implements source.
func (s *topology) askTarget(ctx context.Context, addr string) *server.Driver {
	d, err := s.node(s.completeAddr(nil, addr)).driver(ctx, s)
	if err != nil {
		return nil
	}
	return d
}

// completeAddr completes an address whose host is that of the node which gave
// it.
func (s *topology) completeAddr(from *server.Driver, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || host == "?") {
		host, _, _ = net.SplitHostPort(s.addrOf(from))
		return net.JoinHostPort(host, port)
	}
	if err != nil { // an IPv6 address comes without brackets
		if i := strings.LastIndexByte(addr, ':'); i > 0 {
			return net.JoinHostPort(addr[:i], addr[i+1:])
		}
	}
	return addr
}

func (s *topology) addrOf(d *server.Driver) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, n := range s.nodes {
		if d != nil && n.connected.Load() == d {
			return addr
		}
	}
	return s.at.Hosts[0]
}

// duringElection implements source.
func (s *topology) duringElection(err error) error { return s.lastAnswer.DuringElection(err) }

// epoch implements source.
func (s *topology) epoch() uint64 { return s.version.Load() }

// installLocked makes d the present table of slots.
func (s *topology) installLocked(d *slotTable) {
	s.table.Store(d)
	s.version.Add(1)
	s.c.changed()
}

// refresh implements source.
func (s *topology) refresh(from *server.Driver) {
	addr := ""
	if from != nil {
		addr = s.addrOf(from)
	}
	s.refreshSuspecting(addr)
}

// refreshSuspecting asks the nodes in the background, the node at addr last.
func (s *topology) refreshSuspecting(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if addr != "" {
		s.suspect = addr
	}
	if s.refreshing {
		s.refreshAgain = true
		return
	}
	s.refreshing = s.c.life.Begin(s.askAll)
}

// askAll asks until a node has answered or all were asked. After a pause it
// starts again if doubt was raised meanwhile.
func (s *topology) askAll() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		for _, addr := range s.candidates() {
			if s.c.life.Over() {
				break
			}
			ctx, cancel := context.WithTimeout(ctx, server.DiscoveryTimeout)
			d, err := s.node(addr).driver(ctx, s)
			if err == nil {
				err = s.ask(ctx, d)
			}
			cancel()
			if err == nil {
				break
			}
		}
		cancel()
		s.dropFormer()
		s.c.life.Sleep(context.Background(), server.DiscoveryBackoff)
		s.mu.Lock()
		if !s.refreshAgain || s.c.life.Over() {
			s.refreshing = false
			s.mu.Unlock()
			return
		}
		s.refreshAgain = false
		s.mu.Unlock()
	}
}

// candidates returns the nodes to ask: primaries, replicas and the hosts of the
// URL, in random order, because a node that is cut off from the others knows an
// old topology; and the suspect last.
func (s *topology) candidates() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	add := func(addr string) {
		if addr != s.suspect && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	for _, n := range s.table.Load().primaries {
		add(n.addr)
	}
	for _, addr := range slices.Concat(s.replicas, s.at.Hosts) {
		add(addr)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if s.suspect != "" {
		list = append(list, s.suspect)
		s.suspect = ""
	}
	return list
}

// ask asks one node for the owners of the slots, and installs its answer.
func (s *topology) ask(ctx context.Context, d *server.Driver) error {
	r, err := d.Do(ctx, "CLUSTER", "SLOTS")
	if err != nil {
		return err
	}
	ranges, id, err := wire.ReadSlots(&r)
	if err != nil {
		return err
	}
	next := &slotTable{id: id}
	var replicas []string
	for _, r := range ranges {
		n := s.node(s.completeAddr(d, r.Primary))
		if !slices.Contains(next.primaries, n) {
			next.primaries = append(next.primaries, n)
		}
		for slot := r.From; slot <= r.To; slot++ {
			next.owner[slot] = n
		}
		for _, addr := range r.Replicas {
			replicas = append(replicas, s.completeAddr(d, addr))
		}
	}
	s.lastAnswer.Note()
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.table.Load(); old == nil || old.owner != next.owner || len(old.primaries) != len(next.primaries) {
		s.installLocked(next)
	}
	s.replicas = replicas
	return nil
}

// dropFormer removes the nodes that are no primaries.
func (s *topology) dropFormer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, n := range s.nodes {
		if !slices.Contains(s.table.Load().primaries, n) {
			delete(s.nodes, addr)
			s.c.life.Begin(n.drop)
		}
	}
}

// close implements source.
func (s *topology) close() {
	s.mu.Lock()
	s.closed = true
	nodes := s.nodes
	s.nodes = make(map[string]*node)
	s.mu.Unlock()
	s.endDials()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(n.drop)
	}
	wg.Wait()
}
