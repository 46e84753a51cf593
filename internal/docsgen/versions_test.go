package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/holdfast-go/holdfast/internal/versions"
)

func TestVersionsTable(t *testing.T) {
	record := func(text string) fstest.MapFS {
		return fstest.MapFS{versions.File: {Data: []byte(text)}, "mysqllock/mysqllock.go": {}, "zklock/zklock.go": {}}
	}
	const passes = `[
{"server":"mariadb-11","version":"11.8.6","date":"2026-11-22","package":"mysqllock","tests":334,"skipped":["TestF102_Galera"]},
{"server":"mariadb-installed","version":"9.11.19","date":"2026-11-21","package":"mysqllock","tests":340},
{"server":"postgresql-17","version":"17.1","date":"2026-11-21","package":"pglock","tests":1}
]`
	got, err := versionsTable(record(passes), "mysqllock")
	want := `| server | version | all tests passed on | tests | not run there |
|---|---|---|---|---|
| MariaDB | 9.11.19 | 2026-11-21 | 340 | – |
| MariaDB | 11.8.6 | 2026-11-22 | 334 | ` + "`TestF102_Galera`" + ` |
`
	if err != nil || got != want {
		t.Errorf("got %s%v, want %s", got, err, want)
	}
	if got, err := versionsTable(record(passes), "zklock"); err != nil || got != "No run is recorded yet.\n" {
		t.Errorf("got %q, %v", got, err)
	}
	for pkg, fsys := range map[string]fstest.MapFS{"zklock": record("{"), "zoolock": record(passes), "mysqllock": {"mysqllock/mysqllock.go": {}}} {
		if got, err := versionsTable(fsys, pkg); err == nil {
			t.Errorf("%s: got %q", pkg, got)
		}
	}
}

// TestSupportedTable checks that the table has the oldest and the newest version of each
// server, and that a server without a run is an error.
func TestSupportedTable(t *testing.T) {
	passes := "["
	for _, p := range []struct{ server, pkg, version string }{
		{"redis-8", "redislock", "8.0.2"}, {"redis-installed", "redislock", "7.0.15"}, {"valkey-8", "redislock", "8.1.1"}, {"valkey-8", "stock", "7.0.0"},
		{"etcd-installed", "etcdlock", "3.4.23 and 3.7.3"}, {"etcd-3.5", "etcdlock", "3.5.16"}, {"postgresql-9", "pglock", "9.6"},
		{"postgresql-17", "pglock", "17.11"}, {"mysql-9", "mysqllock", "9.7.4"}, {"mariadb-11", "mysqllock", "11.8.9"},
	} {
		passes += fmt.Sprintf(`{"server":%q,"package":%q,"version":%q,"date":"2026-11-22","tests":1},`, p.server, p.pkg, p.version)
	}
	if _, err := supportedTable(fstest.MapFS{versions.File: {Data: []byte(passes[:len(passes)-1] + "]")}}); err == nil || !strings.Contains(err.Error(), "zklock on ZooKeeper") {
		t.Errorf("without ZooKeeper: %v", err)
	}
	passes += `{"server":"zookeeper-3.9","package":"zklock","version":"3.9.3","date":"2026-11-22","tests":1}]`
	got, err := supportedTable(fstest.MapFS{versions.File: {Data: []byte(passes)}})
	for _, want := range []string{"(stores/redis.md) | 7.0.15 | 8.0.2 |", "| 8.1.1 | 8.1.1 |", "| 3.4.23 | 3.7.3 |", "| 9.6 | 17.11 |", "| 3.9.3 | 3.9.3 |"} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%v, lacks %q:\n%s", err, want, got)
		}
	}
}
