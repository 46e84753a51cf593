package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

func TestMain(m *testing.M) { backends.Main(m) }

func TestRun(t *testing.T) {
	for kind, store := range map[string]string{
		"memory": "memory:stranger-test",
		"sqlite": "sqlite:" + t.TempDir() + "/locks.db",
		"redis":  backends.SharedRedis(t).URL(""),
	} {
		t.Run(kind, func(t *testing.T) {
			var out strings.Builder
			if err := run(t.Context(), &out, store); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); !strings.Contains(got, "bob still holds\n") || !strings.Contains(got, "ann still holds\n") {
				t.Errorf("it said %q", got)
			}
		})
	}
}
