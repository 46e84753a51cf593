package server

import (
	"strings"
	"testing"
)

func TestCheckHello(t *testing.T) {
	for _, c := range []struct{ server, version, mode, role, want string }{
		{"redis", "6.2.0", "standalone", "master", ""},
		{"redis", "7.0.15", "standalone", "master", ""},
		{"redis", "10.0.0", "standalone", "master", ""},
		{"valkey", "8.1.0", "standalone", "master", ""},
		{"redis", "255.255.255", "standalone", "master", ""},
		{"redis", "unstable", "standalone", "master", ""},
		{"redis", "6.0.16", "standalone", "master", "at least 6.2"},
		{"redis", "5.0", "standalone", "master", "at least 6.2"},
		{"redis", "7.0.15", "sentinel", "master", "is a Sentinel"},
		{"redis", "7.0.15", "cluster", "master", "node of a cluster"},
		{"redis", "7.0.15", "standalone", "replica", "primary"},
	} {
		err := checkHello(c.server, c.version, c.mode, c.role, false)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
