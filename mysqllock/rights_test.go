package mysqllock

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
// tables are those that `holdfast schema mysql` lists.
func rights(t *testing.T, s *servers.MariaDBServer, open func(user string) (driver.Driver, error)) *drivertest.Rights {
	return sqlcases.Rights(tables, usersOf(t, s, open))
}

func usersOf(t *testing.T, s *servers.MariaDBServer, open func(user string) (driver.Driver, error)) sqlcases.Users {
	return sqlcases.Users{
		Create: func(user string, rights []string) {
			queries := []string{
				"CREATE USER " + user + "@'%' IDENTIFIED BY '" + servers.MariaDBPassword + "'",
				"GRANT SELECT ON locks.step TO " + user + "@'%'",
			}
			for _, right := range rights {
				queries = append(queries, fmt.Sprintf("GRANT %s TO %s@'%%'", right, user))
			}
			s.Exec(t, queries...)
		},
		Revoke: func(user, right string) { s.Exec(t, fmt.Sprintf("REVOKE %s FROM %s@'%%'", right, user)) },
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
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	s.Exec(t, "CREATE TABLE step (us bigint PRIMARY KEY)")
	open := func(user string) (driver.Driver, error) {
		d, err := Open(context.Background(), s.URL(user, ""))
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	admin, err := open("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.(driver.Marker).Mark(t.Context(), "n"); err != nil { // makes the tables
		t.Fatal(err)
	}
	sqlcases.MarkRights(t, tables, usersOf(t, s, open))
}
