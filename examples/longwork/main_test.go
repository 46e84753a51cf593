package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

func TestMain(m *testing.M) { backends.Main(m) }

func TestRun(t *testing.T) {
	for kind, store := range map[string]string{
		"memory": "memory:longwork-test",
		"sqlite": "sqlite:" + t.TempDir() + "/locks.db",
		"redis":  backends.SharedRedis(t).URL(""),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := run(t.Context(), &out, store); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); !strings.Contains(got, "after 4s another is refused\nthe work is done, and the other has the lock\n") {
				t.Errorf("it said %q", got)
			}
		})
	}
}
