package redislock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// router implements the part of [driver.Driver] that is about one queue and
// differs in nothing between a cluster and the primary of Sentinels.
type router struct {
	// route calls f with the driver of the server that has a queue, and calls it
	// again if the queue turns out to be at another server.
	route func(ctx context.Context, name string, f func(d *server.Driver) error) error
}

// Inspect implements [driver.Driver].
func (r *router) Inspect(ctx context.Context, name string) (l driver.Queue, err error) {
	err = r.route(ctx, name, func(d *server.Driver) (err error) {
		l, err = d.Inspect(ctx, name)
		return err
	})
	return l, err
}

// Break implements [driver.Driver].
func (r *router) Break(ctx context.Context, name, ticketID string) error {
	return r.route(ctx, name, func(d *server.Driver) error { return d.Break(ctx, name, ticketID) })
}

// Mark implements [driver.Marker].
func (r *router) Mark(ctx context.Context, name string) (m driver.Mark, err error) {
	err = r.route(ctx, name, func(d *server.Driver) (err error) {
		m, err = d.Mark(ctx, name)
		return err
	})
	return m, err
}

// SetMark implements [driver.Marker].
func (r *router) SetMark(ctx context.Context, name string, m driver.Mark) error {
	return r.route(ctx, name, func(d *server.Driver) error { return d.SetMark(ctx, name, m) })
}
