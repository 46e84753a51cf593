package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// galeraLibrary is the library of Debian's galera-4, on which mariadb-server
// depends.
const galeraLibrary = "/usr/lib/galera/libgalera_smm.so"

// wsrepOn is the setting that makes a server a member of a cluster.
const wsrepOn = "wsrep-on=ON"

// Galera starts a cluster of MariaDB servers, all of which take writes, for one
// test. They end with the test. The first server's vote decides: cut off from
// all others, it alone goes on. See [MariaDBServer.Isolate].
//
// HOLDFAST_GALERA may name another library than the installed one.
func Galera(t testing.TB, n int) []*MariaDBServer {
	t.Helper()
	fresh := freshFor(t)
	if fresh.mysql {
		Lack(t, "Galera is for MariaDB: leave HOLDFAST_MARIADB_SERVER unset")
	}
	library := os.Getenv("HOLDFAST_GALERA")
	if library == "" {
		library = galeraLibrary
	}
	if _, err := os.Stat(library); err != nil {
		Lack(t, fmt.Sprintf("%v; install galera-4, or set HOLDFAST_GALERA to the library's path", err))
	}
	if _, err := exec.LookPath("rsync"); err != nil { // the servers' own scripts run it
		Lack(t, fmt.Sprintf("%v; install rsync", err))
	}
	group := FreePort(t)
	first := single(t, "galera", func(dir string) *MariaDBServer {
		return newMariaDB(t, fresh, MariaDBOptions{Settings: galeraSettings(t, library, group, "", 2*n)}, dir)
	})
	// A server that joins with the data and the position of the first one needs
	// no full copy, which would take far longer.
	first.Stop()
	kept := &freshMariaDB{bin: fresh.bin, data: filepath.Join(first.dir, "kept")}
	if out, err := exec.Command("cp", "-a", "--sparse=always", first.data(), kept.data).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	first.startAgain(t)
	all := []*MariaDBServer{first}
	for range n - 1 {
		settings := galeraSettings(t, library, FreePort(t), fmt.Sprintf("127.0.0.1:%d", group), 1)
		all = append(all, single(t, "galera", func(dir string) *MariaDBServer {
			return copyMariaDB(t, kept, MariaDBOptions{Settings: settings}, dir)
		}))
	}
	for _, s := range all {
		// A server counts the others before it accepts requests.
		status := func(name string) string { return s.row(t, "SHOW STATUS LIKE '"+name+"'")["Value"] }
		for limit := time.Now().Add(startLimit); status("wsrep_cluster_size") != fmt.Sprint(n) || status("wsrep_ready") != "ON"; {
			if time.Now().After(limit) {
				t.Fatal("the servers do not find each other")
			}
			time.Sleep(time.Millisecond)
		}
	}
	return all
}

// galeraSettings returns the settings of one server, which joins the server at
// the address joins, or begins the cluster if joins is empty.
func galeraSettings(t testing.TB, library string, port int, joins string, weight int) []string {
	settings := []string{
		wsrepOn, "wsrep-provider=" + library, "wsrep-cluster-name=holdfast", "wsrep-cluster-address=gcomm://" + joins,
		"wsrep-node-address=127.0.0.1", "wsrep-sst-method=rsync", fmt.Sprintf("wsrep-sst-receive-address=127.0.0.1:%d", FreePort(t)),
		"binlog-format=ROW", "innodb-autoinc-lock-mode=2",
		"wsrep-provider-options=" + strings.Join([]string{
			fmt.Sprintf("base_port=%d", port), fmt.Sprintf("gmcast.listen_addr=tcp://127.0.0.1:%d", port),
			fmt.Sprintf("ist.recv_addr=127.0.0.1:%d", FreePort(t)), fmt.Sprintf("pc.weight=%d", weight), "gcache.size=1M",
			"evs.suspect_timeout=PT3S", "evs.inactive_timeout=PT8S", "evs.keepalive_period=PT0.5S",
		}, ";"),
	}
	if joins == "" {
		settings = append(settings, "wsrep-new-cluster")
	}
	return settings
}

// checkJoined returns the reason why a server of a cluster takes no statements
// yet (1047), although it accepts connections. It is nil for other servers.
func (s *MariaDBServer) checkJoined(ctx context.Context) error {
	if !slices.Contains(s.opts.Settings, wsrepOn) {
		return nil
	}
	ready, err := s.do(ctx, "SHOW STATUS LIKE 'wsrep_ready'", "--skip-column-names")
	if err == nil && ready != "wsrep_ready\tON" {
		err = errors.New("the server has not joined its cluster yet")
	}
	return err
}

// Isolate cuts a server off from the others of its cluster, or lets it come
// back. Clients reach it in both cases.
func (s *MariaDBServer) Isolate(t testing.TB, off bool) {
	t.Helper()
	how := 0
	if off {
		how = 1
	}
	s.Exec(t, fmt.Sprintf("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=%d'", how))
}
