package redislock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// look finds out, when a server is opened, whether it may drop the keys of
// locks to make room. A picky driver does not open then. Where the user has no
// right to INFO, nothing is known.
func (d *Driver) look(ctx context.Context, picky bool) error {
	text, err := beside(ctx, d, func(c link.Conn) (string, error) { return ask(c, "INFO", "memory") })
	if err != nil {
		if answerOf(err) != "" {
			return nil
		}
		return err
	}
	s := state{info: parseInfo(text)}
	f := s.eviction()
	if f.Level != driver.Problem {
		return nil
	}
	if picky {
		return driver.Errorf(driver.Refused, "%s; %s", f.Detail, f.Advice)
	}
	d.notices.Store(&f)
	return nil
}

// Notices implements [driver.Noticer]: that the server may drop locks when its
// memory runs out.
func (d *Driver) Notices() []driver.Finding {
	if f := d.notices.Load(); f != nil {
		return []driver.Finding{*f}
	}
	return nil
}

// look looks at all primaries. One that does not answer keeps nobody waiting.
// While a cluster is brought to Redis 7 node by node, one of before makes all
// who wait ask.
func (c *Cluster) look(ctx context.Context, picky bool) error {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	ds, err := c.source.primaries(ctx)
	for _, d := range ds {
		if err == nil && d.via != nil { // others have looked when they connected
			if err = d.greet(ctx); err == nil {
				err = d.look(ctx, picky)
			}
		}
		if d.asks.Load() {
			c.asks.Store(true)
		}
	}
	for _, d := range ds {
		d.asks.Store(c.asks.Load())
	}
	if err != nil && driver.ClassOf(err) == driver.Refused {
		return err
	}
	return nil
}

// Notices implements [driver.Noticer], of the first primary that may drop
// locks.
func (c *Cluster) Notices() []driver.Finding {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // those that are connected
	ds, _ := c.source.primaries(ctx)
	for _, d := range ds {
		if fs := d.Notices(); fs != nil {
			return fs
		}
	}
	return nil
}
