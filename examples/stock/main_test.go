package main

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

func TestMain(m *testing.M) {
	if os.Getenv(asSeller) != "" {
		main()
		return
	}
	backends.Main(m)
}

func TestRun(t *testing.T) {
	for name, store := range map[string]string{
		"sqlite": "",
		"redis":  backends.SharedRedis(t).URL(""),
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := run(t.Context(), &out, store, 200); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "sold 200 different units of 200, 0 are left\n") || !strings.Contains(out.String(), "process 8 sold ") {
				t.Errorf("it said %q", out.String())
			}
		})
	}
}
