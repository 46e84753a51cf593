package servers

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Logged are the settings of a server that a replica may follow.
var Logged = []string{"server-id=1", "log-bin=b", "binlog-format=ROW"}

// replication has the words of MariaDB or MySQL for the same things.
type replication struct {
	place, follow, prefix           string // where the log ends, and following from there by options with a prefix
	start, stop, stopReading, reset string
	status, source, log, done       string // the report of a replica: which file it reads, which it applies, how far
	waiting, waitedFor              string // the sides that have variables for commits that wait for the replica
	plugin                          bool   // that waiting needs a plugin of the server
}

func (s *MariaDBServer) replication() replication {
	if s.MySQL {
		return replication{
			place: "SHOW BINARY LOG STATUS", follow: "CHANGE REPLICATION SOURCE TO GET_SOURCE_PUBLIC_KEY=1,", prefix: "SOURCE_",
			start: "START REPLICA", stop: "STOP REPLICA", stopReading: "STOP REPLICA IO_THREAD", reset: "RESET REPLICA ALL",
			status: "SHOW REPLICA STATUS", source: "Source", log: "Relay_Source_Log_File", done: "Exec_Source_Log_Pos",
			waiting: "source", waitedFor: "replica", plugin: true,
		}
	}
	return replication{
		place: "SHOW MASTER STATUS", follow: "CHANGE MASTER TO", prefix: "MASTER_",
		start: "START SLAVE", stop: "STOP SLAVE", stopReading: "STOP SLAVE IO_THREAD", reset: "RESET SLAVE ALL",
		status: "SHOW SLAVE STATUS", source: "Master", log: "Relay_Master_Log_File", done: "Exec_Master_Log_Pos",
		waiting: "master", waitedFor: "slave",
	}
}

// Replica starts a server that follows this one by its binary log, read-only,
// until it is promoted. This server answers a commit once the replica has
// written it down. The replica ends with the test. This server must have the
// settings [Logged], and no data beyond those of its start.
func (s *MariaDBServer) Replica(t testing.TB) *MariaDBServer {
	t.Helper()
	r := MariaDB(t, MariaDBOptions{Settings: []string{"server-id=2", "relay-log=r"}})
	w := s.replication()
	if w.plugin {
		s.Exec(t, fmt.Sprintf("INSTALL PLUGIN rpl_semi_sync_%[1]s SONAME 'semisync_%[1]s.so'", w.waiting))
		r.Exec(t, fmt.Sprintf("INSTALL PLUGIN rpl_semi_sync_%[1]s SONAME 'semisync_%[1]s.so'", w.waitedFor))
	}
	at := s.row(t, w.place)
	r.Exec(t, fmt.Sprintf("%[1]s %[2]sHOST='127.0.0.1', %[2]sPORT=%[3]d, %[2]sUSER='holdfast', %[2]sPASSWORD='%[4]s', %[2]sLOG_FILE='%[5]s', %[2]sLOG_POS=%[6]s",
		w.follow, w.prefix, s.Port, MariaDBPassword, at["File"], at["Position"]))
	r.Exec(t, "SET GLOBAL rpl_semi_sync_"+w.waitedFor+"_enabled = 1, GLOBAL read_only = 1")
	r.Exec(t, w.start)
	s.Exec(t, fmt.Sprintf("SET GLOBAL rpl_semi_sync_%[1]s_enabled = 1, GLOBAL rpl_semi_sync_%[1]s_timeout = 60000", w.waiting))
	for limit := time.Now().Add(startLimit); s.row(t, "SHOW STATUS LIKE 'Rpl_semi_sync_"+w.waiting+"_clients'")["Value"] != "1"; {
		if time.Now().After(limit) {
			t.Fatalf("the replica does not follow: %v", r.row(t, w.status))
		}
		time.Sleep(time.Millisecond)
	}
	return r
}

// Promote makes a replica accept writes, once it has applied everything that it
// has written down.
func (s *MariaDBServer) Promote(t testing.TB) {
	t.Helper()
	w := s.replication()
	s.Exec(t, w.stopReading)
	for limit := time.Now().Add(startLimit); ; {
		at := s.row(t, w.status)
		if at[w.source+"_Log_File"] == at[w.log] && at["Read_"+w.source+"_Log_Pos"] == at[w.done] {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the replica is behind: %v", at)
		}
		time.Sleep(time.Millisecond)
	}
	s.Exec(t, w.stop)
	s.Exec(t, w.reset)
	s.Exec(t, "SET GLOBAL read_only = 0")
}

// row runs a statement that returns one row, and returns its columns by name.
func (s *MariaDBServer) row(t testing.TB, query string) map[string]string {
	t.Helper()
	names, values, found := strings.Cut(s.must(t, query), "\n")
	if !found {
		t.Fatalf("no row of %s", query)
	}
	row, columns := map[string]string{}, strings.Split(values, "\t")
	for i, name := range strings.Split(names, "\t") {
		row[name] = columns[i]
	}
	return row
}
