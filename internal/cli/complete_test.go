//go:build unix

package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestCompletionOffersLockNames(t *testing.T) {
	url, c := memory(t)
	for _, name := range []string{"invoice/1", "invoice/2", "other", "invoice/\x1b"} {
		lock(t, c.Mutex(name))
	}
	for _, verb := range []string{"show", "break"} {
		r := holdfastHere("__complete", "--store", url, verb, "inv").want(t, exitOK, "", "")
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		if want := []string{"invoice/1", "invoice/2", ":4"}; !slices.Equal(lines, want) {
			t.Errorf("%s: %q, want %q", verb, lines, want)
		}
		r = holdfastHere("__complete", "--store", url, verb, "other", "").want(t, exitOK, ":4", "")
		if strings.Contains(r.out, "invoice") {
			t.Errorf("%s: a second name is offered: %q", verb, r.out)
		}
	}
	// A store that is not there offers nothing, and says nothing.
	holdfastHere("__complete", "--store", "redis://127.0.0.1:1", "show", "").want(t, exitOK, ":4", "")
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		holdfastHere("completion", shell).want(t, exitOK, "holdfast", "")
	}
	holdfastHere("completion", "tcsh").want(t, exitUsage, "", "no completion for tcsh, but for bash, fish, powershell, zsh")
	holdfastHere("completion").want(t, exitOK, "holdfast completion", "")
}
