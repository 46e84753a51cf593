package backends

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Logged are the settings of a server that a replica may follow.
var Logged = []string{"server-id=1", "log-bin=b", "binlog-format=ROW"}

// Replica starts a server that follows this one by its binary log, read-only,
// until it is promoted: a commit here is answered once it is written down there.
// It ends with the test. The server must be a MariaDB with the settings
// [Logged], and have nothing in it yet but what it was started with.
func (s *MariaDBServer) Replica(t testing.TB) *MariaDBServer {
	t.Helper()
	r := MariaDB(t, MariaDBOptions{Settings: []string{"server-id=2", "relay-log=r"}})
	at := s.row(t, "SHOW MASTER STATUS")
	r.Exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='holdfast', MASTER_PASSWORD='%s', MASTER_LOG_FILE='%s', MASTER_LOG_POS=%s",
		s.Port, MariaDBPassword, at["File"], at["Position"]))
	r.Exec(t, "SET GLOBAL rpl_semi_sync_slave_enabled = 1, GLOBAL read_only = 1")
	r.Exec(t, "START SLAVE")
	s.Exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = 1, GLOBAL rpl_semi_sync_master_timeout = 60000")
	for limit := time.Now().Add(startLimit); s.row(t, "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")["Value"] != "1"; {
		if time.Now().After(limit) {
			t.Fatalf("the replica does not follow: %v", r.row(t, "SHOW SLAVE STATUS"))
		}
		time.Sleep(time.Millisecond)
	}
	return r
}

// Promote makes a replica a server that takes writes, once it has done
// everything that it has written down.
func (s *MariaDBServer) Promote(t testing.TB) {
	t.Helper()
	s.Exec(t, "STOP SLAVE IO_THREAD")
	for limit := time.Now().Add(startLimit); ; {
		at := s.row(t, "SHOW SLAVE STATUS")
		if at["Master_Log_File"] == at["Relay_Master_Log_File"] && at["Read_Master_Log_Pos"] == at["Exec_Master_Log_Pos"] {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the replica is behind: %v", at)
		}
		time.Sleep(time.Millisecond)
	}
	s.Exec(t, "STOP SLAVE")
	s.Exec(t, "RESET SLAVE ALL")
	s.Exec(t, "SET GLOBAL read_only = 0")
}

// row runs a statement that returns one row, and returns its columns by name.
func (s *MariaDBServer) row(t testing.TB, query string) map[string]string {
	t.Helper()
	row := map[string]string{}
	s.must(t, query, func(ctx context.Context, c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		names, err := rows.Columns()
		if err != nil || !rows.Next() {
			return fmt.Errorf("no row of %s: %w", strings.Join(names, ", "), rows.Err())
		}
		values, to := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			to[i] = &values[i]
		}
		err = rows.Scan(to...)
		for i, name := range names {
			row[name] = values[i].String
		}
		return err
	})
	return row
}
