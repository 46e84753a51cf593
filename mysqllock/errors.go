package mysqllock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
)

// The server's numbers of errors with a meaning of their own here.
const (
	noTable      = 1146
	tableExists  = 1050
	columnExists = 1060
	keyExists    = 1061
	notOwner     = 1095 // of a connection that is to be interrupted
	interrupted  = 1317
)

// code returns the server's number of an error, 0 for other errors.
func code(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// denied says whether rights are missing.
func denied(err error) bool {
	switch code(err) {
	case 1044, 1045, 1142, 1143, 1227, 1370, 1698:
		return true
	}
	return false
}

// takesNoWrites says whether a server may be read only: a replica, one that was
// set so, or one that has lost its cluster.
func takesNoWrites(n uint16) bool {
	switch n {
	case 1290, 1792, 1836, 1047, 1874:
		return true
	}
	return false
}

// full says whether the server has no connection for us.
func full(n uint16) bool { return n == 1040 || n == 1203 || n == 1226 }

// classify gives an error of a packet its class.
func classify(ctx context.Context, err error, commits bool) error {
	if err == nil {
		return nil
	}
	n := code(err)
	if n == 0 {
		class := driver.Unavailable // the transaction was not to end yet, so it has been undone
		switch {
		case errors.Is(err, sqldriver.ErrBadConn) && ctx.Err() == nil:
			class = driver.NotDone // nothing was sent, and the next connection may be a good one
		case errors.Is(err, sqldriver.ErrBadConn): // none was, for as long as the caller had time
		case commits:
			class = driver.Unknown
		}
		return lost(ctx, class, err)
	}
	said := fmt.Errorf("mysql: %w", err)
	switch {
	case takesNoWrites(n):
		return driver.Errorf(driver.Unavailable, "the server takes no writes, it is a replica or was set read-only: %w", said)
	case full(n):
		return driver.Errorf(driver.Unavailable, "the server has no connection left for us: %w", said)
	case denied(err):
		return driver.Errorf(driver.Refused, "this user needs SELECT, INSERT, UPDATE and DELETE on the tables of Holdfast: %w", said)
	}
	switch n {
	case 1213, 1205, 1020, 3572, 1614, 3101:
		return driver.Wrap(driver.NotDone, said)
	case interrupted, 3024, 1969:
		if commits {
			return driver.Wrap(driver.Unknown, said)
		}
		return driver.Wrap(driver.NotDone, said)
	case 1053, 1077, 1079, 1158, 1159, 1160, 1161, 1180, 1181, 1927, 3168, 3169, 4031:
		// It may have ended the connection between the commit and the answer.
		if commits {
			return driver.Wrap(driver.Unknown, said)
		}
		return driver.Wrap(driver.Unavailable, said)
	case noTable:
		return driver.Errorf(driver.Refused, "a table of Holdfast is missing: %w", said)
	case 3, 14, 1021, 1026, 1030, 1037, 1041, 1114, 1223:
		return driver.Errorf(driver.Unavailable, "the server cannot write: %w", said)
	case 1665:
		return driver.Errorf(driver.Refused, "binlog_format has to be MIXED or ROW: %w", said)
	case 1049:
		return driver.Wrap(driver.Refused, said)
	case 1054, 1064, 1136, 1364, 1366, 1406:
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
	return driver.Errorf(class, "mysql: %w", err)
}

// notAcquired is the error of a request that got no connection.
func (d *Driver) notAcquired(ctx context.Context, err error) error {
	switch {
	case d.r.Closed():
		return driver.ErrClosed
	case strings.Contains(err.Error(), "database is closed"), errors.Is(err, sql.ErrConnDone):
		return driver.Errorf(driver.Unavailable, "the pool of connections is closed")
	case ctx.Err() != nil:
		most := d.db.Stats().MaxOpenConnections
		return driver.Errorf(driver.Unavailable, "no connection of the pool (%d at most, 0 is any number) was free in time: %w", most, context.Cause(ctx))
	}
	return notConnected(err)
}

// notConnected is the error of an attempt to connect. Such an error names
// address, user and database; it never has the password in it.
func notConnected(err error) error {
	n := code(err)
	if full(n) {
		return driver.Errorf(driver.Unavailable, "the server has no connection left for us: mysql: %w", err)
	}
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	if denied(err) || n == 1049 || n == 1130 || n == 1231 || unverified || unknown || errors.Is(err, mysql.ErrNoTLS) {
		return driver.Errorf(driver.Refused, "mysql: %w", err)
	}
	return driver.Errorf(driver.Unavailable, "mysql: %w", err)
}
