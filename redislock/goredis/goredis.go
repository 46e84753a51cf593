// Package goredis runs the driver of package redislock on a client of
// github.com/redis/go-redis, for programs that have one: the same scripts, the
// same layout, the same promises. It is a package of its own so that only its
// users import that client.
//
// The user's client decides on some points that [redislock.Open], OpenSentinel
// and OpenCluster decide for their own connections: the time-outs, the pool,
// the retries, which are harmless, and the way of following a failover.
// Renewals and subscriptions have connections of their own.
package goredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
)

// Driver is the type that New returns: a [redislock.Driver] or a
// [redislock.Cluster].
type Driver interface {
	driver.Driver
	driver.Identifier
	driver.Checker
}

// New returns a driver on client, which the caller keeps, and closes after the
// driver. The client is a *redis.Client, as NewClient and NewFailoverClient
// return it, or a *redis.ClusterClient. o may be nil; a cluster has no
// RestartGuard.
//
// A client that reads from replicas does no harm: scripts go to the primary.
// The client's ReadTimeout bounds how long its pool keeps a dead connection.
// Beside the pool, the driver has a connection of its own, in a cluster one to
// each node, with the client's options but without its hooks. Renewals go
// there, so that a pool whose connections are all dead loses no hold.
//
// New blocks for a round trip to the server. It returns an error at once, or
// after five seconds, in the cases of [redislock.New], and for a client of
// another type: a Ring has no place for all keys of a lock that stays the same
// when a server fails.
func New(client redis.UniversalClient, o *redislock.Options) (Driver, error) {
	switch c := client.(type) {
	case nil:
		return nil, errors.New("goredis: client is nil")
	case *redis.Client:
		if c == nil {
			return nil, errors.New("goredis: client is nil")
		}
		if err := closed(c); err != nil {
			return nil, fmt.Errorf("goredis: %w", err)
		}
		d, err := redislock.Via(library{c}, o)
		if err != nil {
			return nil, err
		}
		return d, nil
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New("goredis: client is nil")
		}
		d, err := redislock.ViaCluster(cluster{c}, o)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	return nil, fmt.Errorf("goredis: the client is a %T, neither for one server nor for a cluster", client)
}

// closed returns the error of a client that was closed, or nil. go-redis checks
// that before all else, and a context that has ended keeps it from asking the
// server.
func closed(c *redis.Client) error {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if errors.Is(c.Ping(ctx).Err(), redis.ErrClosed) {
		return client.ErrClosed
	}
	return nil
}

// bg is the context of commands; their driver watches the caller's context.
var bg = context.Background()
