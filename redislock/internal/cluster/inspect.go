package cluster

import (
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Names implements the method of [driver.Driver].
func (c *Cluster) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := c.life.CheckOpen(ctx); err != nil {
			yield("", err)
			return
		}
		seen := make(map[string]bool)
		for n, done := 0, false; !done && n < server.MaxHops; n++ {
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
						c.shouldResend(d, err)
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

// Identity implements [driver.Identifier].
func (c *Cluster) Identity(ctx context.Context) (id string, err error) {
	if err := c.life.CheckOpen(ctx); err != nil {
		return "", err
	}
	err = c.onOwner(ctx, 0, func(d *server.Driver) error {
		r, err := d.Do(ctx, "CLUSTER", "SLOTS")
		if err != nil {
			return err
		}
		_, id, err = wire.ReadSlots(&r)
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("redis-cluster:%s/%s", id, c.Keys.Prefix), nil
}

// Check implements [driver.Checker].
func (c *Cluster) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := c.life.CheckOpen(ctx); err != nil {
		return nil, err
	}
	ds, err := c.source.primaries(ctx)
	if err != nil {
		return nil, err
	}
	t := server.TryLock(ctx, c, c.Keys.Make)
	for _, d := range ds { // a node without the queue's slot reports that only after the right was granted
		if err := t.CheckRights(ctx, d); err != nil {
			return nil, err
		}
	}
	err = c.onOwner(ctx, t.Slot, func(d *server.Driver) error { return t.DeleteKeys(ctx, d) })
	all := []driver.Finding{t.Finding(err), c.checkNodes(ds)}
	d, err := c.source.owner(ctx, t.Slot)
	if err != nil {
		return nil, err
	}
	if !d.Polls.Load() {
		all = append(all, t.CheckPush(ctx, d))
	}
	at := make(map[string]int)
	for _, d := range ds {
		fs, err := d.Findings(ctx)
		if wire.DeniedOf(err) != "" { // the finding about rights covers it
			continue
		}
		if err != nil {
			c.shouldResend(d, err)
			return nil, err
		}
		for _, f := range fs {
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

// checkNodes reports how waiters learn of their grants.
func (c *Cluster) checkNodes(ds []*server.Driver) driver.Finding {
	f := driver.Finding{Topic: "cluster", Detail: fmt.Sprintf("%d primaries", len(ds))}
	if c.Polls.Load() {
		f.Level = driver.Warning
		f.Detail += fmt.Sprintf(", older than Redis 7: waiters poll, the first every %v, the n-th every n × %v, at most every %v", server.PaceFirst, server.PaceFirst, server.PaceLast)
		f.Advice = "use Redis 7.0 or later, whose messages stay in a slot"
	}
	return f
}

// CheckPrimaries calls examine with the drivers of all primaries. A primary that
// does not answer delays nothing. While a cluster is upgraded to Redis 7 node by
// node, a single older node makes all waiters poll.
func (c *Cluster) CheckPrimaries(ctx context.Context, examine func(*server.Driver) error) error {
	ctx, cancel := context.WithTimeout(ctx, server.OpenLimit)
	defer cancel()
	ds, err := c.source.primaries(ctx)
	for _, d := range ds {
		if err == nil {
			err = examine(d)
		}
		if d.Polls.Load() {
			c.Polls.Store(true)
		}
	}
	for _, d := range ds {
		d.Polls.Store(c.Polls.Load())
	}
	if err != nil && driver.ClassOf(err) == driver.Refused {
		return err
	}
	return nil
}

// Notices implements [driver.Noticer].
func (c *Cluster) Notices() []driver.Finding {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // only nodes that are connected already are asked
	ds, _ := c.source.primaries(ctx)
	for _, d := range ds {
		if fs := d.Notices(); fs != nil {
			return fs
		}
	}
	return nil
}
