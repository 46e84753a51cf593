package pglock

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// A notification is part of the transaction that grants. If the server cannot
// write it, because its queue is full (54000), the disk is full, or somebody
// revoked the right to pg_notify, the server undoes the whole transaction. A
// release must not depend on that, so the driver repeats it without the
// notification. The granted waiter then learns of its grant with its next
// renewal.

// notify is the call of the function that notifies. The dialect passes it to
// sqlqueue, see dialect; notifyStmts makes further calls.
const notify = "pg_notify("

// grant is the expression that notifies of a grant, see sqlqueue.Dialect.
const grant = notify + "encode(wake, 'escape'), 'h' || token || ' ' || encode(id, 'escape'))::text"

// trackNotify wraps f, and sets notifies to whether its statements notify. With
// mute, it removes their notifications.
func trackNotify(f func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error), mute bool, notifies *bool) func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error) {
	return func(t sqlqueue.Tx) ([]*sqlqueue.Stmt, error) {
		last, err := f(t)
		*notifies = slices.ContainsFunc(last, func(s *sqlqueue.Stmt) bool { return strings.Contains(s.Text.SQL, notify) })
		if !mute || !*notifies {
			return last, err
		}
		var silent []*sqlqueue.Stmt
		for _, s := range last {
			switch {
			case !strings.Contains(s.Text.SQL, notify):
				silent = append(silent, s)
			case strings.Contains(s.Text.SQL, grant):
				text := *s.Text
				text.SQL = strings.ReplaceAll(text.SQL, grant, "NULL::text")
				without := *s
				without.Text = &text
				silent = append(silent, &without)
			}
		}
		return silent, err
	}
}

// refusedByServer reports whether the server undid a transaction for a reason
// that may be its notification: an error of the server that a repetition would
// meet again.
func refusedByServer(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || ctx.Err() != nil {
		return false
	}
	switch e.Code {
	case readOnly, undefinedTable, undefinedSchema:
		return false
	}
	class := driver.ClassOf(err)
	return !fatal(e) && (class == driver.Refused || class == driver.Unavailable)
}
