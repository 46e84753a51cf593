package pglock

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// rights describes the users of a server to the suite. Their rights on the
// tables are those that `holdfast schema postgres` lists.
func rights(t *testing.T, s *servers.PostgresServer, open func(user string) (driver.Driver, error)) *drivertest.Rights {
	return sqlcases.Rights([]string{"store", "line", "ticket", "grave"}, sqlcases.Users{
		Create: func(user string) {
			s.Exec(t, "CREATE ROLE "+user+" LOGIN")
			s.Exec(t, "GRANT SELECT ON step TO "+user)
		},
		Grant:  func(user, right string) { s.Exec(t, fmt.Sprintf("GRANT %s TO %s", right, user)) },
		Revoke: func(user, right string) { s.Exec(t, fmt.Sprintf("REVOKE %s FROM %s", right, user)) },
		Open:   open,
		Count:  func(query string) int64 { return s.Value(t, query) },
	})
}
