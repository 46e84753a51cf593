package trial

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestManualPagesWithoutWarnings formats the pages with groff and lets mandoc check
// them.
func TestManualPagesWithoutWarnings(t *testing.T) {
	pages, err := filepath.Glob(archive(t) + "/man/*.1")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%v %v", pages, err)
	}
	for _, page := range pages {
		cmd := exec.Command("man", "--warnings=all", "--encoding=UTF-8", "--local-file", page)
		cmd.Dir, cmd.Env = "/", append(os.Environ(), "MANWIDTH=80", "MANPAGER=cat", "LC_ALL=C.UTF-8")
		var warnings strings.Builder
		cmd.Stderr = &warnings
		text, err := cmd.Output()
		if err != nil || warnings.Len() > 0 {
			t.Errorf("man %s: %v\n%s", filepath.Base(page), err, warnings.String())
		}
		if !strings.Contains(string(text), "SEE ALSO") {
			t.Errorf("man %s:\n%s", filepath.Base(page), text)
		}
		if out, err := exec.Command("mandoc", "-T", "lint", "-W", "warning", page).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("mandoc: %v\n%s", err, out)
		}
	}
	t.Logf("%d pages", len(pages))
}

// shell runs a script of a shell with the binary on its path, and returns what it
// prints.
func shell(t *testing.T, folder string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "COMPLETIONS=" + folder + "/completions", "LC_ALL=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command[0], err, out)
	}
	return string(out)
}

// TestCompletionsOfferVerbsAndFlags loads each shell's file and completes words
// with it.
func TestCompletionsOfferVerbsAndFlags(t *testing.T) {
	folder := archive(t)
	for name, out := range map[string]string{
		"bash": shell(t, folder, "bash", "--norc", "-c", `
			. /usr/share/bash-completion/bash_completion
			. "$COMPLETIONS/holdfast"
			complete -p holdfast
			offer() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9; __start_holdfast; echo "${COMPREPLY[@]}"; }
			offer holdfast ver
			offer holdfast run --no`),
		"zsh": shell(t, folder, "zsh", "-f", "-c", `
			zmodload zsh/zpty
			zpty z zsh -f -i
			zpty -w z "PS1=; fpath=($COMPLETIONS \$fpath); autoload -U compinit; compinit -u -D; echo re''ady"
			zpty -r -m z out '*ready*'
			zpty -w -n z $'holdfast ver\t'
			zpty -r -m z out '*ver*sion*'
			print -r -- "$out"
			zpty -w -n z $'\x15holdfast run --no-w\t'
			zpty -r -m z out '*--no-w*ait*'
			print -r -- "$out"
			zpty -d z`),
		"fish": shell(t, folder, "fish", "--no-config", "-c", `
			source $COMPLETIONS/holdfast.fish
			complete -C "holdfast ver"
			complete -C "holdfast run --no"`),
	} {
		if !strings.Contains(out, "version") || !strings.Contains(out, "--no-wait") {
			t.Errorf("%s:\n%s", name, out)
		}
		t.Logf("%s: %q", name, out)
	}
}
