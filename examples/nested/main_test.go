package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

func TestMain(m *testing.M) { backends.Main(m) }

func TestRun(t *testing.T) {
	for kind, store := range map[string]string{
		"memory": "memory:",
		"sqlite": "sqlite:" + t.TempDir() + "/locks.db",
		"redis":  backends.SharedRedis(t).URL(""),
	} {
		t.Run(kind, func(t *testing.T) {
			var out strings.Builder
			if err := run(t.Context(), &out, store); err != nil {
				t.Fatal(err)
			}
			want := `a holds the lock
b holds it too, inside of a's hold
b has returned: a still holds, and another is refused
a has returned: the lock is free
b holds it alone
`
			if out.String() != want {
				t.Errorf("it said %q", out.String())
			}
		})
	}
}
