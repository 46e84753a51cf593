// Package goredis runs the driver of package redislock on a client of
// github.com/redis/go-redis, for programs that have one: the same scripts, the
// same layout, the same promises. It is a package of its own so that only its
// users import that client.
//
// What [redislock.Open], OpenSentinel and OpenCluster do with connections of
// their own is up to the client here: its time-outs, its pool, its
// retries, which are harmless, its way of following a failover. Renewals and
// subscriptions have connections of their own.
package goredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock"
)

// Driver is what New returns: a [redislock.Driver] or a [redislock.Cluster].
type Driver interface {
	driver.Driver
	driver.Identifier
	driver.Checker
}

// New returns a driver on a client that the caller keeps and closes after it.
// The client is a *redis.Client, as NewClient and NewFailoverClient return it,
// or a *redis.ClusterClient. Options may be nil; a cluster has no RestartGuard.
//
// A client that reads from replicas does no harm: scripts go to the primary.
// Its ReadTimeout bounds how long the driver takes to notice that a connection
// is dead. Of its pool, the driver keeps one connection to itself, in a cluster
// one to each node.
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
		d, err := redislock.Via(single{c}, o)
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

// bg is the context of commands; their driver watches the caller's.
var bg = context.Background()
