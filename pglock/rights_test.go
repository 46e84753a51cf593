package pglock

import (
	"context"
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
	return sqlcases.Rights([]string{"store", "line", "ticket", "grave"}, usersOf(t, s, open))
}

func usersOf(t *testing.T, s *servers.PostgresServer, open func(user string) (driver.Driver, error)) sqlcases.Users {
	return sqlcases.Users{
		Create: func(user string, rights []string) {
			statements := []string{"CREATE ROLE " + user + " LOGIN", "GRANT SELECT ON step TO " + user}
			for _, right := range rights {
				statements = append(statements, fmt.Sprintf("GRANT %s TO %s", right, user))
			}
			s.Exec(t, statements...)
		},
		Revoke: func(user, right string) { s.Exec(t, fmt.Sprintf("REVOKE %s FROM %s", right, user)) },
		Open:   open,
		Count:  func(query string) int64 { return s.Value(t, query) },
	}
}

// TestCheckExaminesMarks checks that Check tells a user who lacks a right on the
// table of marks, which Once needs.
//
// Covers: F114.
func TestCheckExaminesMarks(t *testing.T) {
	t.Parallel()
	s := servers.Postgres(t, servers.PostgresOptions{})
	s.Exec(t, "CREATE TABLE step (us bigint)")
	open := func(user string) (driver.Driver, error) {
		d, err := Open(context.Background(), s.URL(user, ""))
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	admin, err := open("postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.(driver.Marker).Mark(t.Context(), "n"); err != nil { // makes the tables
		t.Fatal(err)
	}
	sqlcases.MarkRights(t, []string{"store", "line", "ticket", "grave"}, usersOf(t, s, open))
}
