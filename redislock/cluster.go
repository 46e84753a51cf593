package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// Cluster keeps lines in a Redis Cluster, each in one slot of it. It implements
// [driver.Driver], [driver.Identifier] and [driver.Checker].
//
// It speaks to each primary as a [Driver] does to its server, and follows the
// slots to where they are. Whoever waits hears of its grant by a message in the
// line's slot; before Redis 7 a cluster has no such messages, and who waits asks.
type Cluster struct {
	life
	lines   lineCache
	channel string // begins those of the pushes
	source  source
	asks    atomic.Bool // see Driver

	watching sync.Mutex // guards ears
	ears     *ears      // nil before Watch
}

// source knows which server has which slot.
type source interface {
	// owner returns the driver of the primary that has a slot.
	owner(ctx context.Context, slot int) (*Driver, error)
	// primaries returns the drivers of all.
	primaries(ctx context.Context) ([]*Driver, error)
	// doubt makes the source find out anew, in the background: from does not
	// serve as it should.
	doubt(from *Driver)
	// moved takes in that a slot is elsewhere.
	moved(from *Driver, slot int, addr string)
	// ahead returns the driver of a node by its address, or nil.
	ahead(ctx context.Context, addr string) *Driver
	// epoch changes with what the source knows.
	epoch() uint64
	close()
}

var (
	_ driver.Driver     = (*Cluster)(nil)
	_ driver.Identifier = (*Cluster)(nil)
	_ driver.Checker    = (*Cluster)(nil)
	_ driver.Noticer    = (*Cluster)(nil)
)

// OpenCluster returns a driver for the cluster at a URL, with connections of
// its own:
//
//	redis-cluster://[user[:password]@]host[:port][,host[:port]...][?option=value&...]
//
// The scheme rediss-cluster is the same over TLS. The hosts are some of the
// nodes, which tell of the others; one that answers is enough. The options are
// those of [Open] except restart_guard, and those of confirmed grants, see
// [Options]. User, password and options hold for all nodes.
//
// OpenCluster blocks until a node has said who has which slot. Errors are as in
// [Open].
func OpenCluster(ctx context.Context, url string) (*Cluster, error) {
	m, err := parseCluster(url)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, fmt.Errorf("redislock: open: %w", err)
	}
	c := newCluster(m.prefix)
	s := newSlotMap(c, m)
	c.source = s
	if err := s.first(ctx); err != nil {
		c.Close()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = ended(ctx)
		}
		return nil, fmt.Errorf("redislock: open %s: %w", m.address.addr, err)
	}
	if err := c.look(ctx, m.picky); err != nil {
		c.Close()
		return nil, fmt.Errorf("redislock: open %s: %w", m.address.addr, err)
	}
	return c, nil
}

// newCluster makes a cluster that lacks its source.
func newCluster(prefix string) *Cluster {
	c := &Cluster{channel: newChannel()}
	c.lines.init(prefix, c.channel, true)
	c.life.start()
	return c
}

// Traits implements [driver.Driver].
func (c *Cluster) Traits() driver.Traits {
	t := traits
	t.Scheme = "redis-cluster"
	t.Push = !c.asks.Load()
	// Slots are dealt out in ranges, so names of one lane mostly share a node;
	// each slot has a script of its own in what is sent there.
	t.Lane = func(name string) uint64 { return uint64(slot(lineKey(c.lines.prefix, name)) / 256) }
	return t
}

// Close implements [driver.Driver], as [Driver.Close] does.
func (c *Cluster) Close() error {
	c.finish(func() { c.source.close() })
	return nil
}

func (c *Cluster) before(ctx context.Context) error {
	if c.over() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// hops bounds how often one request is sent on to where its slot is.
const hops = 4

// at calls f with the driver that has a slot, and again where that sends it.
func (c *Cluster) at(ctx context.Context, slot int, f func(d *Driver) error) error {
	for n := 0; ; n++ {
		d, err := c.source.owner(ctx, slot)
		if err != nil {
			return err
		}
		if err = f(d); err == nil || !c.astray(d, err) || n == hops {
			return err
		}
	}
}

// astray takes in why a request failed, and says whether it went to the wrong
// node and the right one is known.
func (c *Cluster) astray(d *Driver, err error) bool {
	if slot, addr, ok := movedTo(err); ok {
		c.source.moved(d, slot, addr)
		return true
	}
	switch driver.ClassOf(err) {
	case driver.Unknown, driver.Unavailable:
		if !moving(err) {
			c.source.doubt(d)
		}
	}
	return errors.Is(err, errDropped)
}

// Join implements [driver.Driver].
func (c *Cluster) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := c.before(ctx); err != nil {
		return driver.Place{}, err
	}
	l := c.lines.get(t.Name)
	told := true
	join := func() (p driver.Place, err error) {
		err = c.at(ctx, l.slot, func(d *Driver) error {
			told = !d.asks.Load()
			p, err = d.Join(ctx, t, wait)
			return err
		})
		return p, err
	}
	p, err := join()
	if err != nil || p.State != driver.Waiting {
		return p, err
	}
	if told && c.hears(ctx, l.slot) {
		// From here on it is told. What was before is asked.
		again, err := join()
		if err == nil {
			p = again
		} else if driver.ClassOf(err) == driver.Unknown {
			return driver.Place{}, err // it may yet be carried out, after a leave too
		}
	}
	return p, nil
}

// Renew implements [driver.Driver]: for each node, what is in its slots.
func (c *Cluster) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	places, err := c.each(ctx, refs, (*Driver).Renew)
	for i := range places {
		if addr, ok := askAt(places[i].Err); ok && plain(refs[i].Ticket) && refs[i].State != driver.Waiting {
			if d := c.source.ahead(ctx, addr); d != nil {
				places[i] = d.renewAhead(ctx, refs[i])
			}
		}
	}
	return places, err
}

// Leave implements [driver.Driver].
func (c *Cluster) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return c.each(ctx, refs, (*Driver).Leave)
}

// each gives every ticket to the driver that has its slot, all drivers at once,
// and those that went astray to the next.
func (c *Cluster) each(ctx context.Context, refs []driver.Ref, f func(*Driver, context.Context, []driver.Ref) ([]driver.Place, error)) ([]driver.Place, error) {
	if err := c.before(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Place, len(refs))
	todo := make([]int, len(refs))
	for i := range todo {
		todo[i] = i
	}
	for n := 0; len(todo) > 0; n++ {
		by := make(map[*Driver][]int)
		for _, i := range todo {
			d, err := c.source.owner(ctx, c.lines.get(refs[i].Name).slot)
			if err != nil {
				places[i] = driver.Place{Err: err}
				continue
			}
			by[d] = append(by[d], i)
		}
		var wg sync.WaitGroup
		for d, is := range by {
			call := func() {
				some := make([]driver.Ref, len(is))
				for k, i := range is {
					some[k] = refs[i]
				}
				ps, err := f(d, ctx, some)
				for k, i := range is {
					if places[i] = (driver.Place{Err: err}); err == nil {
						places[i] = ps[k]
					}
				}
			}
			if len(by) == 1 {
				call()
			} else {
				wg.Go(call)
			}
		}
		wg.Wait()
		todo = todo[:0]
		for d, is := range by {
			for _, i := range is {
				if err := places[i].Err; err != nil && c.astray(d, err) && n < hops {
					todo = append(todo, i)
				}
			}
		}
	}
	return places, nil
}

// Watch implements [driver.Driver]. Subscriptions are made with the first wait
// in a slot.
func (c *Cluster) Watch(ctx context.Context, moved func(id string, p driver.Place)) error {
	if err := c.before(ctx); err != nil {
		return err
	}
	if c.asks.Load() {
		return nil
	}
	c.watching.Lock()
	defer c.watching.Unlock()
	c.ears = newEars(ctx, c, moved)
	return nil
}

// changed is told when slots are elsewhere.
func (c *Cluster) changed() {
	c.begin(func() {
		c.watching.Lock()
		e := c.ears
		c.watching.Unlock()
		if e != nil {
			e.look()
		}
	})
}

// hears makes sure that pushes of a slot are heard, and says whether they were
// not before.
func (c *Cluster) hears(ctx context.Context, slot int) bool {
	c.watching.Lock()
	e := c.ears
	c.watching.Unlock()
	return e != nil && e.want(ctx, slot)
}
