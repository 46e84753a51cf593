//go:build unix

package lockauth

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReloadKeepsTheOldRulesAfterABadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.json")
	write(t, path, someRules)
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	identify := func(token string) string {
		p, err := f.Identify(request("/", "Bearer "+token))
		if err != nil {
			return "nobody"
		}
		return p.Name
	}
	step := func(what, want string, who string) {
		t.Helper()
		err := f.Reload()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if got := identify("test"); got != who {
			t.Errorf("%s: the token is %s's, want %s", what, got, who)
		}
	}
	step("the same file", ErrUnchanged.Error(), "billing")
	write(t, path, `{"principals":[`)
	step("a file that is cut off", "EOF", "billing")
	step("the same cut-off file", ErrUnchanged.Error(), "billing")
	write(t, path, strings.Replace(someRules, `"billing"`, `"accounts"`, 1))
	step("another file", "", "accounts")
	write(t, path, `{"principals":[]}`)
	step("a file without principals", "", "nobody")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	step("no file", "no such file", "nobody")
	write(t, path, `{"principals":[]}`)
	step("the file from before, after an error", "", "nobody")
	write(t, path, someRules)
	step("the first file again", "", "billing")
}

func TestFileThatOthersMayWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "auth.json")
	write(t, path, someRules)
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, text string) {
		t.Helper()
		_, err := OpenFile(path)
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
	for mode, text := range map[os.FileMode]string{0o600: "", 0o644: "", 0o620: "written by others", 0o602: "written by others"} {
		chmod(path, mode)
		want(mode.String(), text)
	}
	chmod(path, 0o600)
	for mode, text := range map[os.FileMode]string{0o755: "", 0o770: "folder", 0o707: "folder", 0o777 | os.ModeSticky: ""} {
		chmod(dir, mode)
		want("folder "+mode.String(), text)
	}
	chmod(dir, 0o700)
	if _, err := OpenFile(dir); err == nil {
		t.Error("a folder was taken for a file")
	}
	if _, err := OpenFile(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
