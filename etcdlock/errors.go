package etcdlock

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// classed returns err with its class, which says whether the request may have
// been carried out.
func classed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &driver.Error{Class: driver.Unknown, Err: errors.Join(context.Cause(ctx), hint(err))}
	}
	switch rpctypes.Error(err) {
	case rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests: // the member does not serve requests yet
		return driver.NotReady(0, "%w", rpctypes.Error(err))
	}
	return driver.Wrap(class(err), rpctypes.Error(err))
}

// hint returns the reason that the client library adds to a time-out, or nil if
// it gives none.
func hint(err error) error {
	if s := status.Convert(err).Message(); strings.Contains(s, "connection") || strings.Contains(s, "dial") {
		return errors.New(s)
	}
	return nil
}

func class(err error) driver.Class {
	switch rpctypes.Error(err) {
	case rpctypes.ErrLeaseNotFound, rpctypes.ErrAuthOldRevision:
		return driver.NotDone
	case rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrCorrupt, rpctypes.ErrUnhealthy:
		return driver.Unavailable
	case rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserNotFound, rpctypes.ErrUserEmpty,
		rpctypes.ErrAuthNotEnabled, rpctypes.ErrInvalidAuthMgmt, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge,
		rpctypes.ErrDuplicateKey, rpctypes.ErrLeaseTTLTooLarge, rpctypes.ErrPermissionNotGranted,
		rpctypes.ErrNoSpace: // until an operator makes room
		return driver.Refused
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		// These failures of a connection surely came before the request was
		// sent.
		for _, sure := range []string{"Error while dialing", "error reading server preface", "authentication handshake failed",
			"there is no address available", "there is no connection available", "no children to pick from"} {
			if strings.Contains(s.Message(), sure) {
				return driver.Unavailable
			}
		}
	case codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument:
		return driver.Refused
	}
	return driver.Unknown
}

// noLease reports whether a request failed because its lease is over.
func noLease(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// full reports whether the store takes no new data (F76).
func full(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }

// unsent returns an error of a step before the request itself with its class:
// the request was surely not carried out.
func unsent(err error) error {
	if err == nil {
		return nil
	}
	if c := driver.ClassOf(err); c == driver.Unknown {
		return &driver.Error{Class: driver.Unavailable, Err: err}
	}
	return err
}

// readOnly returns err with the class for a request that changes nothing: it
// certainly was not carried out.
func readOnly(err error) error {
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Class == driver.Unknown {
		return &driver.Error{Class: driver.Unavailable, Err: e.Err}
	}
	return err
}
