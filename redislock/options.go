package redislock

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// DefaultPrefix begins the keys of queues unless Options say otherwise.
const DefaultPrefix = "holdfast:"

// MinTTL and MaxTTL are the shortest and the longest TTL. The time that a busy
// server takes to answer would use up a shorter one.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 365 * 24 * time.Hour
)

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
func (o *Options) confirms() (*server.Confirmation, error) {
	switch {
	case o == nil:
		return nil, nil
	case o.MinReplicas < 0 || o.MinReplicas > maxReplicas:
		return nil, fmt.Errorf("redislock: MinReplicas is not from 0 to %d", maxReplicas)
	case o.ConfirmWithin < 0 || o.ConfirmWithin > 0 && o.ConfirmWithin < time.Millisecond:
		return nil, errors.New("redislock: ConfirmWithin is less than a millisecond")
	}
	return server.NewConfirmation(o.MinReplicas, o.ConfirmWithin, ErrUnconfirmed), nil
}

const maxReplicas = 1000

func (o *Options) refuseEviction() bool { return o != nil && o.RefuseEviction }

// restartGuard returns the restart guard that the options ask for, or nil.
func (o *Options) restartGuard() *server.GuardSettings {
	if o == nil || !o.RestartGuard {
		return nil
	}
	return &server.GuardSettings{Longest: o.LongestTTL, Refusal: ErrRestarted}
}

// ErrRestarted is wrapped by the error of a join that the restart guard
// refuses: the server lost its data less than a TTL ago, and earlier holders
// may still be working. The only remedy is to ask again after that time.
var ErrRestarted = errors.New("the server has restarted without its data")

// ErrUnconfirmed is wrapped by the error of a join whose grant too few
// replicas confirmed in time. The grant was given back, unless the error has
// the class Unknown: then giving it back may have failed. The only remedy is
// to ask again.
var ErrUnconfirmed = errors.New("too few replicas have confirmed the grant")

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

// settings returns the settings that the options describe.
func (o *Options) settings() (s server.Settings, err error) {
	s = server.Settings{RestartGuard: o.restartGuard(), RefuseEviction: o.refuseEviction()}
	if s.Prefix, err = o.prefix(); err == nil {
		s.Confirms, err = o.confirms()
	}
	return s, err
}
