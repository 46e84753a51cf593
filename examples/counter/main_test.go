package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

func TestMain(m *testing.M) { backends.Main(m) }

func TestRun(t *testing.T) {
	for name, store := range map[string]string{
		"memory": "memory:counter-test",
		"sqlite": "sqlite:" + t.TempDir() + "/locks.db",
		"redis":  backends.SharedRedis(t).URL(""),
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := run(t.Context(), &out, store, 50); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "under the lock: 5000 of 5000\n") {
				t.Errorf("it said %q", out.String())
			}
		})
	}
}
