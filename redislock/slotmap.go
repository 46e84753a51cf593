package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// slotMap is the source of a cluster whose connections are ours: it asks the
// nodes who has which slot.
type slotMap struct {
	c  *Cluster
	at *several // how to reach nodes

	now     atomic.Pointer[deal]
	version atomic.Uint64

	mu      sync.Mutex
	nodes   map[string]*node // by address
	others  []string         // replicas, who know as well
	asking  bool             // somebody asks
	again   bool             // and is to ask once more
	suspect string           // the node that is asked last
	closed  bool
}

// deal is who has which slot.
type deal struct {
	of      [slots]*node
	primary []*node
	id      string // of the node that has the first slot
}

const (
	// rumour bounds how long one node may take to say who has which slot.
	rumour = time.Second
	// lull is between two times that the nodes are asked.
	lull = 100 * time.Millisecond
)

func newSlotMap(c *Cluster, at *several) *slotMap {
	return &slotMap{c: c, at: at, nodes: make(map[string]*node)}
}

// first asks the hosts of the URL, one after the other.
func (s *slotMap) first(ctx context.Context) error {
	var err error
	for i, host := range s.at.hosts {
		var d *Driver
		if d, err = s.node(host).driver(ctx, s); err == nil {
			if i == 0 || s.now.Load() == nil {
				s.c.asks.Store(d.asks.Load())
			}
			if err = s.ask(ctx, d); err == nil {
				s.sweep()
				return nil
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

func (s *slotMap) node(addr string) *node {
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
func (s *slotMap) owner(ctx context.Context, slot int) (*Driver, error) {
	n := s.now.Load().of[slot]
	if n == nil {
		s.doubt(nil)
		return nil, driver.Errorf(driver.Unavailable, "no node of the cluster has slot %d", slot)
	}
	d, err := n.driver(ctx, s)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.suspects(n.addr)
	}
	return d, err
}

// primaries implements source.
func (s *slotMap) primaries(ctx context.Context) ([]*Driver, error) {
	var ds []*Driver
	for _, n := range s.now.Load().primary {
		d, err := n.driver(ctx, s)
		if err != nil {
			return nil, err
		}
		ds = append(ds, d)
	}
	return ds, nil
}

// moved implements source.
func (s *slotMap) moved(from *Driver, slot int, addr string) {
	n := s.node(s.whole(from, addr))
	s.mu.Lock()
	next := *s.now.Load()
	next.of[slot] = n
	if !slices.Contains(next.primary, n) {
		next.primary = append(slices.Clone(next.primary), n)
	}
	s.install(&next)
	s.mu.Unlock()
	s.doubt(nil)
}

// ahead implements source.
func (s *slotMap) ahead(ctx context.Context, addr string) *Driver {
	d, err := s.node(s.whole(nil, addr)).driver(ctx, s)
	if err != nil {
		return nil
	}
	return d
}

// whole completes an address whose host is that of the node which said it.
func (s *slotMap) whole(from *Driver, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || host == "?") {
		return net.JoinHostPort(hostOf(s.addrOf(from)), port)
	}
	if err != nil { // an IPv6 address comes without brackets
		if i := strings.LastIndexByte(addr, ':'); i > 0 {
			return net.JoinHostPort(addr[:i], addr[i+1:])
		}
	}
	return addr
}

func (s *slotMap) addrOf(d *Driver) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, n := range s.nodes {
		if d != nil && n.is.Load() == d {
			return addr
		}
	}
	return s.at.hosts[0]
}

// epoch implements source.
func (s *slotMap) epoch() uint64 { return s.version.Load() }

// install makes a deal the present one. The caller has the lock.
func (s *slotMap) install(d *deal) {
	s.now.Store(d)
	s.version.Add(1)
	s.c.changed()
}

// doubt implements source.
func (s *slotMap) doubt(from *Driver) {
	addr := ""
	if from != nil {
		addr = s.addrOf(from)
	}
	s.suspects(addr)
}

// suspects asks all nodes in the background, this one last.
func (s *slotMap) suspects(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if addr != "" {
		s.suspect = addr
	}
	if s.asking {
		s.again = true
		return
	}
	s.asking = s.c.begin(s.askAll)
}

// askAll asks until a node answers, or all were asked, and after a while again
// when there was another doubt.
func (s *slotMap) askAll() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		for _, addr := range s.candidates() {
			if s.c.over() {
				break
			}
			ctx, cancel := context.WithTimeout(ctx, rumour)
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
		s.sweep()
		select {
		case <-s.c.done:
		case <-time.After(lull):
		}
		s.mu.Lock()
		if !s.again || s.c.over() {
			s.asking = false
			s.mu.Unlock()
			return
		}
		s.again = false
		s.mu.Unlock()
	}
}

// candidates are whom to ask: primaries, replicas and the hosts of the URL, in
// any order, because one that is cut off from the others knows what was; and the
// suspect at last.
func (s *slotMap) candidates() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	add := func(addr string) {
		if addr != s.suspect && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	for _, n := range s.now.Load().primary {
		add(n.addr)
	}
	for _, addr := range slices.Concat(s.others, s.at.hosts) {
		add(addr)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if s.suspect != "" {
		list = append(list, s.suspect)
		s.suspect = ""
	}
	return list
}

// ask asks one node who has which slot, and takes that in.
func (s *slotMap) ask(ctx context.Context, d *Driver) error {
	r, err := beside(ctx, d, func(c link.Conn) (link.Reply, error) { return c.Do("CLUSTER", "SLOTS") })
	if err != nil {
		return err
	}
	ranges, id, err := readSlots(&r)
	if err != nil {
		return err
	}
	next := &deal{id: id}
	var others []string
	for _, r := range ranges {
		n := s.node(s.whole(d, r.primary))
		if !slices.Contains(next.primary, n) {
			next.primary = append(next.primary, n)
		}
		for slot := r.from; slot <= r.to; slot++ {
			next.of[slot] = n
		}
		for _, addr := range r.others {
			others = append(others, s.whole(d, addr))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.now.Load(); old == nil || old.of != next.of || len(old.primary) != len(next.primary) {
		s.install(next)
	}
	s.others = others
	return nil
}

// sweep drops the nodes that are no primaries.
func (s *slotMap) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, n := range s.nodes {
		if !slices.Contains(s.now.Load().primary, n) {
			delete(s.nodes, addr)
			s.c.begin(n.drop)
		}
	}
}

// close implements source.
func (s *slotMap) close() {
	s.mu.Lock()
	s.closed = true
	nodes := s.nodes
	s.nodes = make(map[string]*node)
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(n.drop)
	}
	wg.Wait()
}

// slotRange is a line of the answer to CLUSTER SLOTS.
type slotRange struct {
	from, to int
	primary  string
	others   []string
}

// readSlots reads the answer to CLUSTER SLOTS. id is that of the node that has
// the first of the slots.
func readSlots(r *link.Reply) (ranges []slotRange, id string, err error) {
	list, err := r.List()
	if err != nil {
		return nil, "", unreadable("CLUSTER SLOTS")
	}
	first := slots
	for i := range list {
		v, err := list[i].List()
		if err != nil || len(v) < 3 {
			return nil, "", unreadable("CLUSTER SLOTS")
		}
		from, err1 := v[0].Int()
		to, err2 := v[1].Int()
		if err1 != nil || err2 != nil || from < 0 || to < from || to >= slots {
			return nil, "", unreadable("CLUSTER SLOTS")
		}
		at := slotRange{from: int(from), to: int(to)}
		for k := 2; k < len(v); k++ {
			n, err := v[k].List()
			if err != nil || len(n) < 2 {
				return nil, "", unreadable("CLUSTER SLOTS")
			}
			host, _ := n[0].Text() // nothing where it is the node's own
			port, err := n[1].Int()
			if err != nil {
				return nil, "", unreadable("CLUSTER SLOTS")
			}
			addr := net.JoinHostPort(host, strconv.FormatInt(port, 10))
			if k > 2 {
				at.others = append(at.others, addr)
				continue
			}
			if at.primary = addr; len(n) > 2 && at.from < first {
				id, _ = n[2].Text()
				first = at.from
			}
		}
		ranges = append(ranges, at)
	}
	if len(ranges) == 0 {
		return nil, "", driver.Errorf(driver.Unavailable, "the cluster has dealt out no slots")
	}
	return ranges, id, nil
}
