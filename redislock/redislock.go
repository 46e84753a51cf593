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
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// DefaultPrefix begins the keys of lines unless Options say otherwise.
const DefaultPrefix = "holdfast:"

// MinTTL and MaxTTL are the shortest and the longest TTL. Shorter ones would
// be eaten up by the time that a busy server takes to answer.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 365 * 24 * time.Hour
)

// openLimit bounds the questions that New asks the server.
const openLimit = 5 * time.Second

const maxPrefix = 512

var traits = driver.Traits{
	Scheme:  "redis",
	Fencing: true,
	Shared:  true,
	Owner:   true,
	Fair:    true,
	Push:    true,
	// Whether holds survive a restart depends on how the server persists its
	// data; Check tells. Asynchronous replication survives no failover for sure.
	MinTTL:      MinTTL,
	MaxTTL:      MaxTTL,
	Granularity: time.Millisecond,
}

// Options for [New]. The zero value is useful.
type Options struct {
	// Prefix begins the keys of all lines; it is the default one when empty.
	// Who shall exclude each other needs the same prefix. UTF-8, at most 512
	// bytes.
	Prefix string
	// NoPrefix keeps each line at a key that is its name. Prefix must be empty.
	NoPrefix bool
	// RestartGuard makes a server that restarted without its data less than a
	// TTL ago grant nothing: who held before may still work. The TTL is that of
	// the ticket that asks, or LongestTTL if that is longer. Needs Redis 7.0,
	// and the rights to INFO and SCRIPT LOAD.
	RestartGuard bool
	// RefuseEviction makes opening fail at a server that has a maxmemory, and a
	// policy by which it drops keys when that is used up: locks, too. Without
	// it, such a server is reported, see [Driver.Notices]. Needs the right to
	// INFO, without which the policy is not known.
	RefuseEviction bool
	// MinReplicas is how many replicas must have a grant before it is shown;
	// one that they do not confirm in time is given back, and the join fails
	// with ErrUnconfirmed. It narrows what a failover can forget, see the
	// guarantees; it costs two round trips for each grant, on a connection of
	// its own, and the right to WAIT. 0 asks none.
	MinReplicas int
	// ConfirmWithin is how long they have, never more than a tenth of the TTL.
	// It is below the client's time-outs. 0 means a second.
	ConfirmWithin time.Duration
	// LongestTTL is the longest TTL that anybody uses, for RestartGuard. 0 says
	// that all who want one lock use the same.
	LongestTTL time.Duration
}

// confirms returns what is asked of replicas, or nil.
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

func (o *Options) picky() bool { return o != nil && o.RefuseEviction }

// guard returns the restart guard that the options ask for, or nil.
func (o *Options) guard() *guard {
	if o == nil || !o.RestartGuard {
		return nil
	}
	return newGuard(o.LongestTTL)
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
		return "", fmt.Errorf("redislock: prefix has %d bytes, the most is %d", len(o.Prefix), maxPrefix)
	case !utf8.ValidString(o.Prefix):
		return "", errors.New("redislock: prefix is not valid UTF-8")
	}
	return o.Prefix, nil
}

// Driver keeps lines in one Redis server. It implements [driver.Driver],
// [driver.Identifier] and [driver.Checker].
type Driver struct {
	client  rueidis.Client
	via     link.Client // another library than rueidis; client is nil then
	scripts *scripts
	end     func() // ends the client's connections when Open made it, else nil
	lines   lineCache
	channel string // of the pushes to this driver
	keeps   atomic.Pointer[keepText]
	guard   *guard // nil for none
	version string // of the server, when it was opened

	// asks says that who waits here is not told of its turn, but asks: the
	// cluster, or some node of it, is of before Redis 7. There, a message is sent
	// to all nodes, and nobody says who listens.
	asks atomic.Bool

	// replaceable says that another driver takes the place of this one where
	// the server is not the one to ask any more.
	replaceable bool

	notices atomic.Pointer[driver.Finding] // what was found on opening, if anything

	crowded atomic.Bool  // two requests have met
	calling atomic.Int32 // lone requests under way
	alone   *alone       // nil when the client is the user's
	lookout lookout
	crowd   crowd
	senders senders
	aside   aside

	confirms *confirmation // nil for none
	waits    aside         // where replicas are waited for

	life
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ driver.Noticer    = (*Driver)(nil)
)

// New returns a driver on a client that the caller keeps and closes after it.
// Options may be nil.
//
// The client has to be for one server, not for a Sentinel or a cluster, and is
// best made with DisableRetry: requests that are repeated do no harm, but those
// that are late are of no use. Its ConnWriteTimeout bounds how long the driver
// takes to notice that a connection is dead.
//
// New asks the server what it is and returns an error at once, or after five
// seconds, when it cannot be reached, refuses the user, is older than 6.2, or
// is a replica, a Sentinel or a node of a cluster.
func New(client rueidis.Client, o *Options) (*Driver, error) {
	s, err := o.setup()
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errors.New("redislock: client is nil")
	}
	if mode := client.Mode(); mode != rueidis.ClientModeStandalone {
		return nil, fmt.Errorf("redislock: the client is for a %s, not for one server", mode)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	s.client = client
	return open(ctx, s)
}

// setup returns what the options say of a driver on a client of the user's.
func (o *Options) setup() (s setup, err error) {
	s = setup{guard: o.guard(), alone: new(alone), picky: o.picky()}
	if s.prefix, err = o.prefix(); err == nil {
		s.confirms, err = o.confirms()
	}
	return s, err
}

// setup is what a driver is made of.
type setup struct {
	client rueidis.Client
	via    link.Client // instead of client
	alone  *alone
	end    func() // ends the client's connections, if they are the driver's own
	prefix string
	guard  *guard

	// Of a node of a cluster:
	cluster bool
	channel string // which all its nodes have in common
	asks    bool   // see Driver

	replaceable bool
	confirms    *confirmation
	picky       bool // refuse servers that may drop keys
}

// open makes a driver and checks the server.
func open(ctx context.Context, s setup) (*Driver, error) {
	d := unchecked(s)
	err := d.greet(ctx)
	if err == nil {
		err = d.look(ctx, s.picky)
	}
	if err == nil && s.guard != nil {
		_, err = s.guard.again(ctx, d, nil)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("redislock: %w", err)
	}
	return d, nil
}

// unchecked makes a driver.
func unchecked(s setup) *Driver {
	d := &Driver{
		client:  s.client,
		via:     s.via,
		end:     s.end,
		alone:   s.alone,
		guard:   s.guard,
		scripts: plainScripts,
		channel: s.channel,

		replaceable: s.replaceable,
		confirms:    s.confirms,
	}
	if s.cluster {
		d.scripts = shardScripts()
	}
	d.asks.Store(s.asks)
	if d.channel == "" {
		d.channel = newChannel()
	}
	d.life.start()
	d.lines.init(s.prefix, d.channel, s.cluster)
	d.aside.start = time.Now()
	d.waits.start = d.aside.start
	return d
}

// newChannel returns the name of a channel that nobody else has.
func newChannel() string {
	var b [16]byte
	rand.Read(b[:])
	return "holdfast_push:" + hex.EncodeToString(b[:])
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Close implements [driver.Driver]. It waits for what is under way, but not
// longer than two seconds for a server that does not answer; a goroutine that
// then still waits on the user's own client ends with the client's time-out.
func (d *Driver) Close() error {
	d.finish(func() {
		d.senders.close()
		if d.end != nil {
			d.end()
		}
		d.aside.close()
		d.waits.close()
		if d.end != nil {
			d.client.Close()
		}
	})
	return nil
}

// before returns why nothing can be sent, if so.
func (d *Driver) before(ctx context.Context) error {
	if d.over() {
		return d.overErr()
	}
	return driver.Before(ctx)
}
