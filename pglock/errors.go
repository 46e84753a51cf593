package pglock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// SQLSTATE codes to which the driver reacts.
const (
	serializationFailure = "40001"
	undefinedTable       = "42P01"
	undefinedSchema      = "3F000"
	noRights             = "42501"
	readOnly             = "25006"
	tooManyConnections   = "53300"
	wrongPassword        = "28P01"
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
			return connError(ctx, class, err)
		}
		if commits {
			return connError(ctx, driver.Unknown, err)
		}
		// COMMIT was not sent yet, so the transaction has been undone.
		return connError(ctx, driver.Unavailable, err)
	}
	serverErr := fmt.Errorf("postgresql: %w", err)
	if fatal(e) && commits {
		// The connection broke, perhaps between the commit and its answer.
		return driver.Wrap(driver.Unknown, serverErr)
	}
	// A statement that failed with an error that is not fatal has been undone,
	// but for 40003.
	if notPrepared(err) {
		return driver.Wrap(driver.NotDone, serverErr)
	}
	switch e.Code {
	case serializationFailure, "40P01", "55P03", "57014", "25P03":
		return driver.Wrap(driver.NotDone, serverErr)
	case "40003":
		// The server itself does not know the outcome.
		return driver.Wrap(driver.Unknown, serverErr)
	case readOnly:
		return driver.Errorf(driver.Unavailable, "the server accepts no writes: it is a standby or read-only: %w", serverErr)
	case undefinedTable, undefinedSchema:
		return driver.Errorf(driver.Refused, "a table of Holdfast is missing: %w", serverErr)
	case noRights:
		return driver.Errorf(driver.Refused, "this user needs SELECT, INSERT, UPDATE and DELETE on the tables of Holdfast: %w", serverErr)
	case tooManyConnections:
		return driver.Errorf(driver.Unavailable, "the server has too many clients: %w", serverErr)
	case "53100":
		return driver.Errorf(driver.Unavailable, "the server's disk is full: %w", serverErr)
	case "22P02", "42704":
		return driver.Wrap(driver.Refused, serverErr)
	}
	switch e.Code[:min(2, len(e.Code))] {
	case "08", "25", "53", "55", "57", "58", "XX", "F0":
		return driver.Wrap(driver.Unavailable, serverErr)
	case "42":
		return driver.Errorf(driver.Refused, "the tables are not those of this version of Holdfast: %w", serverErr)
	}
	return driver.Wrap(driver.Refused, serverErr)
}

// fatal reports whether the server ended the connection with this error.
func fatal(e *pgconn.PgError) bool {
	if e.SeverityUnlocalized != "" {
		return e.SeverityUnlocalized != "ERROR"
	}
	return e.Severity != "ERROR"
}

// connError returns the error of a connection that broke, or whose server gave
// no answer until the request's time was over.
func connError(ctx context.Context, class driver.Class, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return &driver.Error{Class: class, Err: cause}
	}
	return driver.Errorf(class, "postgresql: %w", err)
}

// notAcquired returns the error of a request that got no connection.
func (d *database) notAcquired(ctx context.Context, err error) error {
	switch {
	case d.tables.Stopped():
		return driver.ErrClosed
	case strings.Contains(err.Error(), "closed pool"):
		return driver.Errorf(driver.Unavailable, "the pool of connections is closed")
	case ctx.Err() != nil:
		return d.notInTime(context.Cause(ctx))
	}
	return notConnected(err)
}

// notInTime returns the error of a request that got no connection in its time.
func (d *database) notInTime(cause error) error {
	return driver.Errorf(driver.Unavailable, "timed out waiting for a connection (pool size %d): %w", d.pool.Stat().MaxConns(), cause)
}

// A connectError is the error of an attempt to connect, on one line. The client
// library writes a line for each attempt, with TLS and without, and repeats the
// cause in each.
type connectError struct {
	text string
	err  error
}

// Error returns the failure at each address, each cause once.
func (e *connectError) Error() string { return e.text }

// Unwrap returns the client library's own error.
func (e *connectError) Unwrap() error { return e.err }

// perAddress matches the beginning of the client library's error for one
// attempt.
var perAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\S+) \(\S*\): `) })

// flatten returns the error of an attempt to connect as a connectError.
func flatten(err error) error {
	connectErr, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	causes := []error{connectErr.Unwrap()}
	if several, ok := causes[0].(interface{ Unwrap() []error }); ok {
		causes = several.Unwrap()
	}
	var texts []string
	for _, cause := range causes {
		text := perAddress().ReplaceAllString(cause.Error(), "$1: ")
		if dial, ok := errors.AsType[*net.OpError](cause); ok && dial.Op == "dial" {
			text = dial.Error() // it names the address
		} else if pgconn.Timeout(cause) {
			address, _, _ := strings.Cut(text, ": ")
			text = fmt.Sprintf("%s: no answer in %v", address, connectErr.Config.ConnectTimeout)
		}
		text = strings.Join(strings.Fields(text), " ")
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	// Where TLS is optional, the attempt without TLS has the actual cause.
	if rest := slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return strings.Contains(s, "server refused TLS") }); len(rest) > 0 {
		texts = rest
	}
	return &connectError{text: strings.Join(texts, "; "), err: err}
}

// notConnected returns the error of an attempt to connect. Such an error names
// the address, or the wrong user or database; it never contains the password.
func notConnected(err error) error {
	err = flatten(err)
	switch c := code(err); {
	case c == tooManyConnections:
		return driver.Errorf(driver.Unavailable, "the server has too many clients: %w", err)
	case strings.HasPrefix(c, "28"), c == "3D000", c == "42501", c == "42704":
		return driver.Wrap(driver.Refused, err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return driver.Wrap(driver.Refused, err)
	}
	return driver.Wrap(driver.Unavailable, err)
}

// reactTo adapts the database to an error of a request.
func (d *database) reactTo(err error) {
	if notPrepared(err) {
		d.textOnly.Store(true)
	}
	if d.Missing(err) {
		// Somebody dropped a table: the next request creates it again.
		d.tables.Forget()
	}
}
