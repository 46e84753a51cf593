package redislock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// checkEviction finds out, when a server is opened, whether it may evict the
// keys of locks to make room. If so, it fails with refuse, and otherwise keeps
// the finding for Notices. If the user has no right to INFO, nothing is known.
func (d *Driver) checkEviction(ctx context.Context, refuse bool) error {
	text, err := onControl(ctx, d, func(c client.Conn) (string, error) { return ask(c, "INFO", "memory") })
	if err != nil {
		if wire.AnswerOf(err) != "" {
			return nil
		}
		return err
	}
	s := serverState{info: wire.ParseInfo(text)}
	f := s.eviction()
	if f.Level != driver.Problem {
		return nil
	}
	if refuse {
		return driver.Errorf(driver.Refused, "%s; %s", f.Detail, f.Advice)
	}
	d.notices.Store(&f)
	return nil
}

// Notices implements [driver.Noticer]: it reports that the server may evict
// locks when its memory runs out.
func (d *Driver) Notices() []driver.Finding {
	if f := d.notices.Load(); f != nil {
		return []driver.Finding{*f}
	}
	return nil
}

// checkPrimaries calls examine with the drivers of all primaries. A primary that
// does not answer delays nothing. While a cluster is upgraded to Redis 7 node by
// node, a single older node makes all waiters poll.
func (c *Cluster) checkPrimaries(ctx context.Context, examine func(*Driver) error) error {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	ds, err := c.source.primaries(ctx)
	for _, d := range ds {
		if err == nil {
			err = examine(d)
		}
		if d.polls.Load() {
			c.polls.Store(true)
		}
	}
	for _, d := range ds {
		d.polls.Store(c.polls.Load())
	}
	if err != nil && driver.ClassOf(err) == driver.Refused {
		return err
	}
	return nil
}

// Notices implements [driver.Noticer]: it reports the first primary that may
// evict locks.
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
