// Package server is the driver of one Redis server, whatever its client library: how
// tickets join, are renewed and leave, how waiters are woken, and what a check finds.
// The drivers of package redislock rest on it.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// OpenLimit bounds the requests with which a server is examined.
const OpenLimit = 5 * time.Second

// Driver keeps queues in one Redis server. It has all methods of [driver.Driver] but
// Traits.
type Driver struct {
	client       client.Client
	requests     wire.Requests
	Channel      string        // of the pushes to this driver
	restartGuard *restartGuard // nil: none
	Version      string        // of the server, when it was opened

	// Polls says that this driver's waiters get no pushes and poll: the
	// cluster, or some node of it, is older than Redis 7. Such a cluster sends
	// a message to all nodes, and PUBLISH does not count the listeners.
	Polls atomic.Bool

	notices atomic.Pointer[driver.Finding] // the finding made on opening, if any

	control     ownConn
	Confirms    *Confirmation // nil for none
	confirmConn ownConn       // the connection on which confirmations wait for replicas

	Life
}

// Settings is the set of decisions that users take by options or by a URL.
type Settings struct {
	Prefix         string
	RestartGuard   *GuardSettings // nil for none
	Confirms       *Confirmation  // nil for none
	RefuseEviction bool           // refuse servers that may evict keys
}

// Setup is the set of values that a driver is made from.
type Setup struct {
	Settings
	Lib client.Library

	// Of a node of a cluster:
	Cluster bool
	Channel string // shared by all its nodes
	Polls   bool   // see Driver

	Replaceable bool // see Life
}

// Open makes a driver and checks the server.
func Open(ctx context.Context, s Setup) (*Driver, error) {
	d := Unchecked(s)
	err := d.CheckServer(ctx, s.RefuseEviction)
	if err == nil && d.restartGuard != nil {
		_, err = d.restartGuard.examine(ctx, d, nil)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Unchecked makes a driver without a request to the server.
func Unchecked(s Setup) *Driver {
	d := &Driver{
		restartGuard: newRestartGuard(s.RestartGuard),
		Channel:      s.Channel,

		Confirms: s.Confirms,
	}
	d.replaceable = s.Replaceable
	d.Polls.Store(s.Polls)
	if d.Channel == "" {
		d.Channel = NewChannel()
	}
	d.Life.Start()
	d.client = s.Lib.In(client.Life{Begin: d.Begin, Done: d.Done})
	d.requests.Init(s.Prefix, d.Channel, s.Cluster, scriptsOf(s.Cluster))
	start := time.Now()
	d.control.init(start)
	d.confirmConn.init(start)
	return d
}

// The scripts are made once, by the first driver: a program that links this package and
// opens another store, as the command does, starts without them.
var (
	plainScripts = sync.OnceValue(wire.NewScripts)
	shardScripts = sync.OnceValue(wire.NewShardScripts)
)

// scriptsOf returns the scripts for a server, or for a node of a cluster.
func scriptsOf(cluster bool) *wire.Scripts {
	if cluster {
		return shardScripts()
	}
	return plainScripts()
}

// NewChannel returns the name of a channel that no other driver has.
func NewChannel() string {
	var b [16]byte
	rand.Read(b[:])
	return "holdfast_push:" + hex.EncodeToString(b[:])
}

// Close implements the method of [driver.Driver].
func (d *Driver) Close() error {
	d.Finish(func() {
		d.client.Cut()
		d.control.close()
		d.confirmConn.close()
		d.client.Close()
	})
	return nil
}
