package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// openLimit bounds the requests with which New examines the server.
const openLimit = 5 * time.Second

// Driver keeps queues in one Redis server. It implements [driver.Driver],
// [driver.Identifier] and [driver.Checker].
type Driver struct {
	client       client.Client
	requests     wire.Requests
	channel      string        // of the pushes to this driver
	restartGuard *restartGuard // nil: none
	version      string        // of the server, when it was opened

	// polls says that this driver's waiters get no pushes and poll: the
	// cluster, or some node of it, is older than Redis 7. Such a cluster sends
	// a message to all nodes, and PUBLISH does not count the listeners.
	polls atomic.Bool

	notices atomic.Pointer[driver.Finding] // the finding made on opening, if any

	control     ownConn
	confirms    *confirmation // nil for none
	confirmConn ownConn       // the connection on which confirmations wait for replicas

	life
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ driver.Noticer    = (*Driver)(nil)
	_ driver.Marker     = (*Driver)(nil)
)

// settings is the set of decisions that users take by options or by a URL.
type settings struct {
	prefix         string
	restartGuard   *guardSettings // nil for none
	confirms       *confirmation  // nil for none
	refuseEviction bool           // refuse servers that may evict keys
}

// setup is the set of values that a driver is made from.
type setup struct {
	settings
	lib client.Library

	// Of a node of a cluster:
	cluster bool
	channel string // shared by all its nodes
	polls   bool   // see Driver

	replaceable bool // see life
}

// open makes a driver and checks the server.
func open(ctx context.Context, s setup) (*Driver, error) {
	d := unchecked(s)
	err := d.checkServer(ctx, s.refuseEviction)
	if err == nil && d.restartGuard != nil {
		_, err = d.restartGuard.examine(ctx, d, nil)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// unchecked makes a driver without a request to the server.
func unchecked(s setup) *Driver {
	d := &Driver{
		restartGuard: newRestartGuard(s.restartGuard),
		channel:      s.channel,

		confirms: s.confirms,
	}
	d.replaceable = s.replaceable
	d.polls.Store(s.polls)
	if d.channel == "" {
		d.channel = newChannel()
	}
	d.life.start()
	d.client = s.lib.In(client.Life{Begin: d.begin, Done: d.done})
	d.requests.Init(s.prefix, d.channel, s.cluster, scriptsOf(s.cluster))
	start := time.Now()
	d.control.init(start)
	d.confirmConn.init(start)
	return d
}

// newChannel returns the name of a channel that no other driver has.
func newChannel() string {
	var b [16]byte
	rand.Read(b[:])
	return "holdfast_push:" + hex.EncodeToString(b[:])
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Close implements [driver.Driver]. It waits for the requests under way, but
// at most two seconds for a server that does not answer. A goroutine that then
// still waits on the user's own client ends with the client's time-out.
func (d *Driver) Close() error {
	d.finish(func() {
		d.client.Cut()
		d.control.close()
		d.confirmConn.close()
		d.client.Close()
	})
	return nil
}
