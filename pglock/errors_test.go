package pglock

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// TestClassesOfErrors checks that the class of a server's error says what
// became of the request.
func TestClassesOfErrors(t *testing.T) {
	for _, c := range []struct {
		code     string
		severity string
		want     driver.Class
	}{
		{"40001", "ERROR", driver.NotDone},
		{"40P01", "ERROR", driver.NotDone},
		{"55P03", "ERROR", driver.NotDone},
		{"57014", "ERROR", driver.NotDone},
		{"26000", "ERROR", driver.NotDone},
		{"40003", "ERROR", driver.Unknown},
		{"57P01", "FATAL", driver.Unknown},
		{"53100", "ERROR", driver.Unavailable},
		{"25006", "ERROR", driver.Unavailable},
		{"42501", "ERROR", driver.Refused},
		{"22001", "ERROR", driver.Refused},
	} {
		err := classify(context.Background(), &pgconn.PgError{Severity: c.severity, Code: c.code, Message: "message"}, true)
		if got := driver.ClassOf(err); got != c.want {
			t.Errorf("%s: class %v, want %v", c.code, got, c.want)
		}
	}
}
