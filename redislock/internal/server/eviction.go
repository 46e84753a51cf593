package server

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

// Notices implements [driver.Noticer].
func (d *Driver) Notices() []driver.Finding {
	if f := d.notices.Load(); f != nil {
		return []driver.Finding{*f}
	}
	return nil
}
