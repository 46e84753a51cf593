package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/rueidisclient"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// DefaultPrefix begins the keys of queues unless Options say otherwise.
const DefaultPrefix = "holdfast:"

// MinTTL and MaxTTL are the shortest and the longest TTL. The time that a busy
// server takes to answer would use up a shorter one.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 365 * 24 * time.Hour
)

// openLimit bounds the requests with which New examines the server.
const openLimit = 5 * time.Second

const maxPrefix = 512

var traits = driver.Traits{
	Scheme:  "redis",
	Fencing: true,
	Shared:  true,
	Owner:   true,
	Fair:    true,
	Push:    true,
	Marks:   true,
	// Whether holds survive a restart depends on how the server persists its
	// data; Check reports it. Asynchronous replication guarantees survival of
	// no failover.
	MinTTL:      MinTTL,
	MaxTTL:      MaxTTL,
	Granularity: time.Millisecond,
}

// Options are the settings of [New]. The zero value is useful.
type Options struct {
	// Prefix begins the keys of all queues; empty means DefaultPrefix. Clients
	// exclude each other only if they use the same prefix. It is UTF-8, of at
	// most 512 bytes.
	Prefix string
	// NoPrefix keeps each queue at a key that equals its name. Prefix must be
	// empty.
	NoPrefix bool
	// RestartGuard makes a server that restarted without its data refuse
	// grants for one TTL: earlier holders may still be working. The TTL is
	// that of the ticket that joins, or LongestTTL if that is longer.
	// RestartGuard needs Redis 7.0, and the rights to INFO and SCRIPT LOAD.
	RestartGuard bool
	// RefuseEviction makes opening fail if the server has a maxmemory, and a
	// policy that evicts keys when the memory is used up: the policy evicts
	// locks, too. Without RefuseEviction such a server is reported, see
	// [Driver.Notices]. RefuseEviction needs the right to INFO; without that
	// right the policy is unknown.
	RefuseEviction bool
	// MinReplicas is the number of replicas that must have a grant before the
	// client sees it. A grant that they do not confirm in time is given back,
	// and the join fails with ErrUnconfirmed. MinReplicas narrows what a
	// failover can forget, see the guarantees. It costs two round trips for
	// each grant, on a connection of its own, and needs the right to WAIT. 0
	// asks no replica.
	MinReplicas int
	// ConfirmWithin bounds the wait for replicas; at most a tenth of the TTL
	// is used. It is to be below the client's time-outs. 0 means a second.
	ConfirmWithin time.Duration
	// LongestTTL is the longest TTL of any client, for RestartGuard. 0 states
	// that all clients of one lock use the same TTL.
	LongestTTL time.Duration
}

// confirms returns the confirmation that the options ask for, or nil.
func (o *Options) confirms() (*confirmation, error) {
	switch {
	case o == nil:
		return nil, nil
	case o.MinReplicas < 0 || o.MinReplicas > maxReplicas:
		return nil, fmt.Errorf("redislock: MinReplicas is not from 0 to %d", maxReplicas)
	case o.ConfirmWithin < 0 || o.ConfirmWithin > 0 && o.ConfirmWithin < time.Millisecond:
		return nil, errors.New("redislock: ConfirmWithin is less than a millisecond")
	}
	return newConfirmation(o.MinReplicas, o.ConfirmWithin), nil
}

const maxReplicas = 1000

func (o *Options) refuseEviction() bool { return o != nil && o.RefuseEviction }

// restartGuard returns the restart guard that the options ask for, or nil.
func (o *Options) restartGuard() *restartGuard {
	if o == nil || !o.RestartGuard {
		return nil
	}
	return newRestartGuard(o.LongestTTL)
}

func (o *Options) prefix() (string, error) {
	switch {
	case o == nil:
		return DefaultPrefix, nil
	case o.NoPrefix && o.Prefix != "":
		return "", errors.New("redislock: both Prefix and NoPrefix are set")
	case o.NoPrefix:
		return "", nil
	case o.Prefix == "":
		return DefaultPrefix, nil
	case len(o.Prefix) > maxPrefix:
		return "", fmt.Errorf("redislock: prefix is %d bytes long; the maximum is %d", len(o.Prefix), maxPrefix)
	case !utf8.ValidString(o.Prefix):
		return "", errors.New("redislock: prefix is not valid UTF-8")
	}
	return o.Prefix, nil
}

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
)

// New returns a driver on client, which the caller keeps, and closes after the
// driver. o may be nil.
//
// The client has to be for one server, not for a Sentinel or a cluster. It is
// best made with DisableRetry: repeated requests do no harm, but late ones are
// of no use. The client's ConnWriteTimeout bounds how long the driver takes to
// notice a dead connection.
//
// New asks the server for its version and role. It returns an error at once,
// or after five seconds, when the server cannot be reached, refuses the user,
// is older than 6.2, or is a replica, a Sentinel or a node of a cluster.
func New(client rueidis.Client, o *Options) (*Driver, error) {
	if client == nil {
		return nil, errors.New("redislock: client is nil")
	}
	if mode := client.Mode(); mode != rueidis.ClientModeStandalone {
		return nil, fmt.Errorf("redislock: the client is for a %s, not for one server", mode)
	}
	return Via(rueidisclient.Of(client), o)
}

// settings is the set of decisions that users take by options or by a URL.
type settings struct {
	prefix         string
	restartGuard   *restartGuard // nil for none
	confirms       *confirmation // nil for none
	refuseEviction bool          // refuse servers that may evict keys
}

// settings returns the settings that the options describe.
func (o *Options) settings() (s settings, err error) {
	s = settings{restartGuard: o.restartGuard(), refuseEviction: o.refuseEviction()}
	if s.prefix, err = o.prefix(); err == nil {
		s.confirms, err = o.confirms()
	}
	return s, err
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
	err := d.greet(ctx)
	if err == nil {
		err = d.checkLayout(ctx)
	}
	if err == nil {
		err = d.checkEviction(ctx, s.refuseEviction)
	}
	if err == nil && s.restartGuard != nil {
		_, err = s.restartGuard.examine(ctx, d, nil)
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
		restartGuard: s.restartGuard,
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
