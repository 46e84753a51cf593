package main

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

func TestMain(m *testing.M) {
	if os.Getenv(asVictim) != "" {
		main()
		return
	}
	backends.Main(m)
}

func TestRun(t *testing.T) {
	for kind, store := range map[string]string{
		"sqlite": "",
		"redis":  backends.SharedRedis(t).URL(""),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := run(t.Context(), &out, store); err != nil {
				t.Fatal(err)
			}
			got := out.String()
			if !strings.Contains(got, "it was killed\nthe next holder has the lock after ") {
				t.Errorf("it said %q", got)
			}
			t.Log(got)
		})
	}
}
