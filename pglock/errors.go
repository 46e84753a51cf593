package pglock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// SQLSTATE codes with a meaning of their own here.
const (
	serializationFailure = "40001"
	undefinedTable       = "42P01"
	undefinedSchema      = "3F000"
	noRights             = "42501"
	readOnly             = "25006"
	tooManyConnections   = "53300"
)

// code returns the server's SQLSTATE, empty for other errors.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// classify gives an error of a round trip its class.
func classify(ctx context.Context, err error, commits bool) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if pgconn.SafeToRetry(err) { // nothing was sent
			class := driver.Unavailable
			if ctx.Err() != nil {
				class = driver.NotDone
			}
			return lost(ctx, class, err)
		}
		if commits {
			return lost(ctx, driver.Unknown, err)
		}
		// The transaction was not to end yet, so it has been undone.
		return lost(ctx, driver.Unavailable, err)
	}
	said := fmt.Errorf("postgresql: %w", err)
	fatal := e.Severity != "ERROR"
	if e.SeverityUnlocalized != "" {
		fatal = e.SeverityUnlocalized != "ERROR"
	}
	if fatal && commits {
		// The connection broke, perhaps between the commit and its answer.
		return driver.Wrap(driver.Unknown, said)
	}
	// Whatever failed with an error that is not fatal has been undone.
	if notPrepared(err) {
		return driver.Wrap(driver.NotDone, said)
	}
	switch e.Code {
	case serializationFailure, "40P01", "55P03", "57014", "25P03":
		return driver.Wrap(driver.NotDone, said)
	case readOnly:
		return driver.Errorf(driver.Unavailable, "the server takes no writes, it is a standby or was set read-only: %w", said)
	case undefinedTable, undefinedSchema:
		return driver.Errorf(driver.Refused, "a table of Holdfast is missing: %w", said)
	case noRights:
		return driver.Errorf(driver.Refused, "this user needs SELECT, INSERT, UPDATE and DELETE on the tables of Holdfast: %w", said)
	case tooManyConnections:
		return driver.Errorf(driver.Unavailable, "the server has no connection left for us: %w", said)
	case "53100":
		return driver.Errorf(driver.Unavailable, "the server's disk is full: %w", said)
	case "22P02", "42704":
		return driver.Wrap(driver.Refused, said)
	}
	switch e.Code[:min(2, len(e.Code))] {
	case "08", "25", "53", "55", "57", "58", "XX", "F0":
		return driver.Wrap(driver.Unavailable, said)
	case "42":
		return driver.Errorf(driver.Refused, "the tables are not those of this version of Holdfast: %w", said)
	}
	return driver.Wrap(driver.Refused, said)
}

// lost is the error of a connection that broke, or whose server was silent until
// the request's time was over.
func lost(ctx context.Context, class driver.Class, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return &driver.Error{Class: class, Err: cause}
	}
	return driver.Errorf(class, "postgresql: %w", err)
}

// notAcquired is the error of a request that got no connection.
func (d *Driver) notAcquired(ctx context.Context, err error) error {
	switch {
	case d.r.Closed():
		return driver.ErrClosed
	case strings.Contains(err.Error(), "closed pool"):
		return driver.Errorf(driver.Unavailable, "the pool of connections is closed")
	case ctx.Err() != nil:
		return driver.Errorf(driver.Unavailable, "no connection of the pool (%d at most) was free in time: %w", d.maxConns(), context.Cause(ctx))
	}
	return notConnected(err)
}

func (d *Driver) maxConns() int32 {
	return d.pool.Stat().MaxConns()
}

// notConnected is the error of an attempt to connect. Such an error names
// address, user and database; it never has the password in it.
func notConnected(err error) error {
	switch c := code(err); {
	case c == tooManyConnections:
		return driver.Errorf(driver.Unavailable, "the server has no connection left for us: %w", err)
	case strings.HasPrefix(c, "28"), c == "3D000", c == "42501", c == "42704":
		return driver.Wrap(driver.Refused, err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return driver.Wrap(driver.Refused, err)
	}
	return driver.Wrap(driver.Unavailable, err)
}

// judge draws conclusions from an error of a request.
func (d *Driver) judge(err error) {
	if notPrepared(err) {
		d.plain.Store(true)
	}
	switch code(err) {
	case undefinedTable, undefinedSchema:
		// Somebody dropped a table: make it again when next asked.
		d.r.Forget()
	}
}
