package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/versions"
)

// supportedServers are the rows of the table of supported servers: the package whose
// tests count, its page, and where the makers of the server say until when they support
// a version.
var supportedServers = []struct{ title, pkg, page, until string }{
	{"Redis", "redislock", "stores/redis.md", "https://endoflife.date/redis"},
	{"Valkey", "redislock", "stores/redis.md", "https://valkey.io/topics/releases/"},
	{"etcd", "etcdlock", "stores/etcd.md", "https://etcd.io/docs/latest/op-guide/versioning/"},
	{"PostgreSQL", "pglock", "stores/postgresql.md", "https://www.postgresql.org/support/versioning/"},
	{"MySQL", "mysqllock", "stores/mysql.md", "https://www.mysql.com/support/eol-notice.html"},
	{"MariaDB", "mysqllock", "stores/mysql.md", "https://mariadb.org/about/#maintenance-policy"},
	{"ZooKeeper", "zklock", "stores/zookeeper.md", "https://zookeeper.apache.org/releases.html"},
}

// supportedTable returns a table of the oldest and the newest version of each server on
// which all tests of its package passed.
func supportedTable(fsys fs.FS) (string, error) {
	data, err := fs.ReadFile(fsys, versions.File)
	if err != nil {
		return "", err
	}
	all, err := versions.Parse(data)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| server | oldest tested | newest tested | supported by its makers |\n|---|---|---|---|\n")
	for _, s := range supportedServers {
		var passed []string
		for _, p := range all {
			if p.Package == s.pkg && p.Title() == s.title {
				passed = append(passed, strings.Split(p.Version, " and ")...)
			}
		}
		if len(passed) == 0 {
			return "", fmt.Errorf("no run of %s on %s is recorded", s.pkg, s.title)
		}
		fmt.Fprintf(&b, "| [%s](%s) | %s | %s | [until](%s) |\n", s.title, s.page,
			slices.MinFunc(passed, compareVersions), slices.MaxFunc(passed, compareVersions), s.until)
	}
	return b.String(), nil
}
