package main

import (
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
