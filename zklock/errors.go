package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// classed gives an error of the client library its class. What is not known to
// have failed before anything was sent is Unknown.
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
	case errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrInvalidPath),
		errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrNoChildrenForEphemerals):
		class = driver.Refused
	}
	return driver.Errorf(class, "%s: %w", what, err)
}

var errAway = errors.New("not connected to any server")

// away is the error of a request that was not sent for lack of a connection.
func (s *session) away() error {
	if err := s.tap.trouble(); err != nil {
		return driver.Errorf(driver.Unavailable, "%w: %w", errAway, err)
	}
	return &driver.Error{Class: driver.Unavailable, Err: errAway}
}

// ended is the error of a call whose context has ended; what it did is unknown.
func ended(ctx context.Context) error {
	return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
}

// foreign is the error of something in the way that is not Holdfast's.
func foreign(path, what string) error {
	return &driver.Error{Class: driver.Refused, Err: fmt.Errorf("%s %s; it is left alone", path, what)}
}
