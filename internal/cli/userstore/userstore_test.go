package userstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestURL(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	got, err := URL()
	if want := "sqlite:" + filepath.Join(dir, "holdfast", "locks.db"); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	info, err := os.Stat(filepath.Join(dir, "holdfast"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}

	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "file"))
	if got, err := URL(); err == nil {
		t.Errorf("a folder below a file: %q", got)
	}
}

func TestFileURL(t *testing.T) {
	if got, want := FileURL("/a b?%c"), "sqlite:/a%20b%3F%25c"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStateDir(t *testing.T) {
	home := func() (string, error) { return "/h", nil }
	none := func() (string, error) { return "", errors.New("no home") }
	for _, tt := range []struct {
		system, xdg string
		home        func() (string, error)
		want        string
	}{
		{"linux", "", home, "/h/.local/state/holdfast"},
		{"linux", "/x", home, "/x/holdfast"},
		{"linux", "/x", none, "/x/holdfast"},
		{"linux", "relative", home, "/h/.local/state/holdfast"},
		{"darwin", "", home, "/h/Library/Application Support/holdfast"},
		{"linux", "", none, ""},
		{"linux", "", func() (string, error) { return "h", nil }, ""},
	} {
		got, err := stateDir(tt.system, func(string) string { return tt.xdg }, tt.home)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
	}
}
