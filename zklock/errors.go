package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// classed gives an error of the client library its class. The class is Unknown
// unless the request is known to have failed before it was sent or carried out.
func classed(what string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e
	}
	class := driver.Unknown
	switch {
	case errors.Is(err, zk.ErrNoServer):
		class = driver.Unavailable
	case errors.Is(err, zk.ErrSessionMoved):
		class = driver.NotDone
	case errors.Is(err, zk.ErrNoAuth):
		return driver.Errorf(driver.Refused, "%s: no right to do that: wrong user or password, or an ACL: %w", what, err)
	case usersOnly(err):
		return driver.Errorf(driver.Refused, "%s: the server serves known users alone, perhaps those of another scheme, such as SASL: %w", what, err)
	case errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrInvalidPath),
		errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrNoChildrenForEphemerals):
		class = driver.Refused
	}
	return driver.Errorf(class, "%s: %w", what, err)
}

// usersOnly reports whether the server ended the session because the client
// named no user that the server knows. The client library has no name for this
// error code.
func usersOnly(err error) bool { return strings.HasSuffix(err.Error(), "unknown error: -124") }

// opened reports whether servers have answered this driver.
func (d *Driver) opened() bool { return d.traits.Scheme != "" }

var errAway = errors.New("not connected to any server")

// away returns the error of a request that was not sent for lack of a
// connection. The servers proved to be ZooKeeper's when the driver was opened:
// a server that does not answer the handshake or ends it now has no quorum, and
// will serve when it has one.
func (s *session) away() error {
	err := s.unconnected()
	return &driver.Error{Class: driver.Unavailable, Err: err, NotReady: s.d.opened() && notServing(err)}
}

// unconnected returns an error that there is no connection, with the cause if
// it is known.
func (s *session) unconnected() error {
	if err := s.tap.trouble(); err != nil {
		return fmt.Errorf("%w: %w", errAway, err)
	}
	return errAway
}

// ended returns the error of a call whose context has ended; the outcome of the
// call is unknown.
func ended(ctx context.Context) error {
	return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
}

// foreign returns the error of a node at path that is not Holdfast's.
func foreign(path, what string) error {
	return &driver.Error{Class: driver.Refused, Err: fmt.Errorf("%s %s; it is left alone", path, what)}
}
