package redislock

import (
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// Inspect implements [driver.Driver].
func (c *Cluster) Inspect(ctx context.Context, name string) (l driver.Line, err error) {
	if err := c.before(ctx); err != nil {
		return driver.Line{}, err
	}
	err = c.at(ctx, c.lines.get(name).slot, func(d *Driver) error {
		l, err = d.Inspect(ctx, name)
		return err
	})
	return l, err
}

// Break implements [driver.Driver].
func (c *Cluster) Break(ctx context.Context, name, ticketID string) error {
	if err := c.before(ctx); err != nil {
		return err
	}
	return c.at(ctx, c.lines.get(name).slot, func(d *Driver) error { return d.Break(ctx, name, ticketID) })
}

// Names implements [driver.Driver]: as [Driver.Names], on one primary after the
// other, and once more on all when a slot was moved meanwhile.
func (c *Cluster) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := c.before(ctx); err != nil {
			yield("", err)
			return
		}
		seen := make(map[string]bool)
		for n, done := 0, false; !done && n < hops; n++ {
			epoch := c.source.epoch()
			ds, err := c.source.primaries(ctx)
			if err != nil {
				yield("", err)
				return
			}
			for _, d := range ds {
				for name, err := range d.Names(ctx, prefix) {
					switch {
					case err != nil:
						c.astray(d, err)
					case seen[name]:
						continue
					default:
						seen[name] = true
					}
					if !yield(name, err) || err != nil {
						return
					}
				}
			}
			done = epoch == c.source.epoch()
		}
	}
}

// Identity implements [driver.Identifier]: the id of the node that has the
// cluster's first slot, and the prefix. It is another one after a failover.
func (c *Cluster) Identity(ctx context.Context) (id string, err error) {
	if err := c.before(ctx); err != nil {
		return "", err
	}
	err = c.at(ctx, 0, func(d *Driver) error {
		r, err := beside(ctx, d, func(c link.Conn) (link.Reply, error) { return c.Do("CLUSTER", "SLOTS") })
		if err != nil {
			return err
		}
		_, id, err = readSlots(&r)
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("redis-cluster:%s/%s", id, c.lines.prefix), nil
}

// Check implements [driver.Checker]: a lock that is taken and released, and
// what each primary says of itself. Of a topic on which they differ it tells
// the worst.
func (c *Cluster) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := c.before(ctx); err != nil {
		return nil, err
	}
	ds, err := c.source.primaries(ctx)
	if err != nil {
		return nil, err
	}
	rights, l := checkLock(ctx, c, c.lines.make)
	err = c.at(ctx, l.slot, func(d *Driver) error { return d.drop(ctx, l) })
	all := []driver.Finding{dropped(rights, err), c.checkNodes(ds)}
	d, err := c.source.owner(ctx, l.slot)
	if err != nil {
		return nil, err
	}
	if !d.asks.Load() {
		all = append(all, d.checkPush(ctx, l))
	}
	at := make(map[string]int)
	for _, d := range ds {
		s, err := beside(ctx, d, examine)
		if err != nil {
			c.astray(d, err)
			return nil, err
		}
		for _, f := range s.findings() {
			i, seen := at[f.Topic]
			switch {
			case !seen:
				at[f.Topic] = len(all)
				all = append(all, f)
			case f.Level > all[i].Level:
				all[i] = f
			}
		}
	}
	return all, nil
}

// checkNodes says how waiters are told.
func (c *Cluster) checkNodes(ds []*Driver) driver.Finding {
	f := driver.Finding{Topic: "cluster", Detail: fmt.Sprintf("%d primaries", len(ds))}
	if c.asks.Load() {
		f.Level = driver.Warning
		f.Detail += fmt.Sprintf(", before Redis 7: who waits is not told of its turn, and asks; the first every %v, the n-th every n × %v, at most every %v", paceFirst, paceFirst, paceLast)
		f.Advice = "use Redis 7.0 or later, whose messages stay in a slot"
	}
	return f
}
