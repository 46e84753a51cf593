package server

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storelayout"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Greet asks the server for its version and role, by HELLO, which needs no
// rights from Redis 7.0 on.
func (d *Driver) Greet(ctx context.Context) error {
	r, err := d.Do(ctx, "HELLO")
	if err != nil {
		return fmt.Errorf("cannot read the server's version and role: %w", err)
	}
	list, _ := r.List()
	fields := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].Text()
		fields[name], _ = list[i+1].Text() // values that are no texts are not used
	}
	d.Version = fields["version"]
	if d.requests.Sharded && !wire.AtLeast(d.Version, 7, 0) {
		d.Polls.Store(true)
	}
	return checkHello(fields["server"], d.Version, fields["mode"], fields["role"], d.requests.Sharded)
}

// CheckServer returns the error that makes a server unsuitable for locks, or nil.
func (d *Driver) CheckServer(ctx context.Context, refuseEviction bool) error {
	if err := d.Greet(ctx); err != nil {
		return err
	}
	if err := d.checkLayout(ctx); err != nil {
		return err
	}
	return d.checkEviction(ctx, refuseEviction)
}

// checkHello returns the error of a server whose answer to HELLO is unsuitable,
// or nil.
func checkHello(server, version, mode, role string, cluster bool) error {
	switch {
	case mode == "sentinel":
		return driver.Errorf(driver.Refused, "the server is a Sentinel, not a Redis server; its URL begins with redis-sentinel")
	case mode == "cluster" && !cluster:
		return driver.Errorf(driver.Refused, "the server is a node of a cluster, not a standalone server; its URL begins with redis-cluster")
	case mode != "cluster" && cluster:
		return driver.Errorf(driver.Refused, "the server is no node of a cluster")
	}
	// Valkey counts its own versions, the first of which is 7.2.
	if !wire.AtLeast(version, 6, 2) {
		return driver.Errorf(driver.Refused, "server is too old: %s %s, at least 6.2 is needed", server, version)
	}
	if role != "master" && !cluster { // in a cluster, the topology names the primary
		return driver.Errorf(driver.Unavailable, "server is a %s: locks need the primary", role)
	}
	return nil
}

// checkLayout refuses a server that a later version of Holdfast uses in another way. A
// user who may not read the key has no right to any lock, and a node of a cluster that
// does not have its slot says nothing.
func (d *Driver) checkLayout(ctx context.Context) error {
	r, err := d.Do(ctx, "GET", wire.LayoutKey)
	if err != nil {
		if wire.AnswerOf(err) != "" {
			return nil
		}
		return fmt.Errorf("cannot read the layout: %w", err)
	}
	text, err := r.Text()
	if err != nil { // there is none
		return nil
	}
	return storelayout.Check("key "+wire.LayoutKey, text)
}

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
