package backends

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// galeraLibrary is what Debian's galera-4 installs, on which mariadb-server
// depends.
const galeraLibrary = "/usr/lib/galera/libgalera_smm.so"

// Galera starts a cluster of MariaDB servers, each of which takes writes, for
// one test. They end with it. The first one's vote decides: cut off from all
// others, it alone goes on. See [MariaDBServer.Isolate].
//
// HOLDFAST_GALERA may name another library than the one that is installed.
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
		return newMariaDB(t, fresh, MariaDBOptions{Settings: galera(t, library, group, "", 2*n)}, dir)
	})
	// Who joins with the data of the first one, and its place in history, needs
	// no copy of everything: that would take far longer.
	first.Stop()
	kept := &freshMariaDB{bin: fresh.bin, data: filepath.Join(first.dir, "kept")}
	if out, err := exec.Command("cp", "-a", "--sparse=always", first.data(), kept.data).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	first.again(t)
	all := []*MariaDBServer{first}
	for range n - 1 {
		settings := galera(t, library, FreePort(t), fmt.Sprintf("127.0.0.1:%d", group), 1)
		all = append(all, single(t, "galera", func(dir string) *MariaDBServer {
			return copyMariaDB(t, kept, MariaDBOptions{Settings: settings}, dir)
		}))
	}
	for _, s := range all {
		for limit := time.Now().Add(startLimit); s.row(t, "SHOW STATUS LIKE 'wsrep_cluster_size'")["Value"] != fmt.Sprint(n); {
			if time.Now().After(limit) {
				t.Fatal("the servers do not find each other")
			}
			time.Sleep(time.Millisecond)
		}
	}
	return all
}

// galera returns the settings of one server, which joins who is at that address,
// or begins the cluster.
func galera(t testing.TB, library string, port int, joins string, weight int) []string {
	settings := []string{
		"wsrep-on=ON", "wsrep-provider=" + library, "wsrep-cluster-name=holdfast", "wsrep-cluster-address=gcomm://" + joins,
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

// Isolate cuts a server off from the others of its cluster, or lets it come
// back. Clients reach it all the same.
func (s *MariaDBServer) Isolate(t testing.TB, off bool) {
	t.Helper()
	how := 0
	if off {
		how = 1
	}
	s.Exec(t, fmt.Sprintf("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=%d'", how))
}
