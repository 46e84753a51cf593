package mysqllock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
)

// The server's error numbers to which the driver reacts.
const (
	wrongPassword = 1045
	noTable       = 1146
	tableExists   = 1050
	columnExists  = 1060
	keyExists     = 1061
	rowExists     = 1062
	notOwner      = 1095 // of the connection to interrupt
	interrupted   = 1317
)

// code returns the server's number of an error, 0 for other errors.
func code(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// denied reports whether the user lacks a right.
func denied(err error) bool {
	switch code(err) {
	case 1044, 1045, 1142, 1143, 1227, 1370, 1698:
		return true
	}
	return false
}

// deniedForm matches the servers' errors that name a missing right, with the
// database before the table or without.
var deniedForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("^([A-Z]+)[A-Za-z ]* command denied to user .* (?:for|in) table (?:[`'][^`']*[`']\\.)?[`'](\\w+)[`']")
})

// missingRight returns the missing right in the words of a grant, "SELECT on
// holdfast_line", or nothing where the server does not name it.
func missingRight(err error) string {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		if m := deniedForm().FindStringSubmatch(e.Message); m != nil {
			return m[1] + " on " + m[2]
		}
	}
	return ""
}

// takesNoWrites reports whether a server may only be read: a replica, a server
// that was set read-only, or one that has lost its cluster.
func takesNoWrites(n uint16) bool {
	switch n {
	case 1290, 1792, 1836, 1047, 1874:
		return true
	}
	return false
}

// noFreeConn reports whether the server has no free connection.
func noFreeConn(n uint16) bool { return n == 1040 || n == 1203 || n == 1226 }

// classify gives an error of a packet its class.
func classify(ctx context.Context, err error, commits bool) error {
	if err == nil {
		return nil
	}
	n := code(err)
	if n == 0 {
		class := driver.Unavailable                           // COMMIT was not sent yet, so the transaction has been undone
		if commits && !errors.Is(err, sqldriver.ErrBadConn) { // ErrBadConn means that nothing was sent
			class = driver.Unknown
		}
		return lost(ctx, class, err)
	}
	serverErr := fmt.Errorf("mysql: %w", err)
	switch {
	case takesNoWrites(n):
		return driver.Errorf(driver.Unavailable, "the server accepts no writes: it is a replica or read-only: %w", serverErr)
	case noFreeConn(n):
		return driver.Errorf(driver.Unavailable, "the server has too many clients: %w", serverErr)
	case denied(err):
		if right := missingRight(err); right != "" {
			return driver.Errorf(driver.Refused, "this user lacks %s: %w", right, serverErr)
		}
		return driver.Errorf(driver.Refused, "this user needs SELECT, INSERT, UPDATE and DELETE on the tables of Holdfast: %w", serverErr)
	}
	switch n {
	case 1213, 1205, 1020, 1206, 1412, 3572, 1614, 3101:
		return driver.Wrap(driver.NotDone, serverErr)
	case rowExists:
		// The ticket has a place already, from an earlier request.
		return driver.Wrap(driver.Unknown, serverErr)
	case interrupted, 3024, 1969:
		if commits {
			return driver.Wrap(driver.Unknown, serverErr)
		}
		return driver.Wrap(driver.NotDone, serverErr)
	case 1053, 1077, 1079, 1158, 1159, 1160, 1161, 1180, 1181, 1927, 3168, 3169, 4031:
		// The server may have ended the connection between the commit and the
		// answer.
		if commits {
			return driver.Wrap(driver.Unknown, serverErr)
		}
		return driver.Wrap(driver.Unavailable, serverErr)
	case noTable:
		return driver.Errorf(driver.Refused, "a table of Holdfast is missing: %w", serverErr)
	case 3, 14, 1021, 1026, 1030, 1037, 1041, 1114, 1223, 1637:
		return driver.Errorf(driver.Unavailable, "the server cannot write: %w", serverErr)
	case 1665:
		return driver.Errorf(driver.Refused, "binlog_format must be MIXED or ROW: %w", serverErr)
	case 1049:
		return driver.Wrap(driver.Refused, serverErr)
	case 1054, 1064, 1136, 1364, 1366, 1406:
		return driver.Errorf(driver.Refused, "the tables are not those of this version of Holdfast: %w", serverErr)
	}
	return driver.Wrap(driver.Refused, serverErr)
}

// undoneByServer reports whether the server refused a statement for a reason
// that may be a message for another client, and not the lock: an error of the
// server that a repetition would meet again.
func undoneByServer(ctx context.Context, err error) bool {
	n := code(err)
	if n == 0 || takesNoWrites(n) || noFreeConn(n) || ctx.Err() != nil {
		return false
	}
	class := driver.ClassOf(err)
	return class == driver.Refused || class == driver.Unavailable
}

// lost returns the error of a connection that broke, or whose server gave no
// answer until the request's time was over.
func lost(ctx context.Context, class driver.Class, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return &driver.Error{Class: class, Err: cause}
	}
	return driver.Errorf(class, "mysql: %w", err)
}

// notAcquired returns the error of a request that got no connection.
func (d *database) notAcquired(ctx context.Context, err error) error {
	switch {
	case d.tables.Stopped():
		return driver.ErrClosed
	case strings.Contains(err.Error(), "database is closed"), errors.Is(err, sql.ErrConnDone):
		return driver.Errorf(driver.Unavailable, "the pool of connections is closed")
	case ctx.Err() != nil:
		most := d.pool.Stats().MaxOpenConnections
		return driver.Errorf(driver.Unavailable, "timed out waiting for a connection (pool size %d, 0 means no limit): %w", most, context.Cause(ctx))
	}
	return notConnected(err)
}

// notConnected returns the error of an attempt to connect. Such an error names
// address, user and database; it never contains the password.
func notConnected(err error) error {
	n := code(err)
	if noFreeConn(n) {
		return driver.Errorf(driver.Unavailable, "the server has too many clients: mysql: %w", err)
	}
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	if denied(err) || n == 1049 || n == 1130 || n == 1231 || unverified || unknown || errors.Is(err, mysql.ErrNoTLS) {
		return driver.Errorf(driver.Refused, "mysql: %w", err)
	}
	return driver.Errorf(driver.Unavailable, "mysql: %w", err)
}
