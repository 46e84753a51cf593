//go:build unix

package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	file := filepath.Join(dir, "store")
	if err := os.WriteFile(file, []byte("  redis://u:pw@h/3 \nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	own := "sqlite:" + filepath.Join(dir, "holdfast", "locks.db")
	for _, tt := range []struct {
		name, flag, file, env string
		url, from, err        string
	}{
		{name: "default", url: own, from: "the default"},
		{name: "flag", flag: "redis://a", env: "redis://b", url: "redis://a", from: "--store"},
		{name: "file", file: file, env: "redis://b", url: "redis://u:pw@h/3", from: "--store-file"},
		{name: "flag with file", flag: "@" + file, url: "redis://u:pw@h/3", from: "--store"},
		{name: "environment", env: "redis://b", url: "redis://b", from: storeVar},
		{name: "environment with file", env: "@" + file, url: "redis://u:pw@h/3", from: storeVar},
		{name: "both", flag: "redis://a", file: file, err: "given both"},
		{name: "no such file", file: file + "2", err: "no such file"},
		{name: "empty file", file: empty, err: "is empty"},
		{name: "taken out", env: "redis://u:***@h", err: "was taken out"},
		{name: "relative", flag: "sqlite:my%20locks.db?sync=normal", url: "sqlite:" + dir + "/my%20locks.db?sync=normal", from: "--store"},
		{name: "absolute", flag: "sqlite:/x/y", url: "sqlite:/x/y", from: "--store"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(storeVar, tt.env)
			a := newApp()
			a.store, a.storeFile = tt.flag, tt.file
			l, err := a.locate()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || statusOf(err) != exitUsage {
					t.Errorf("%+v, error %v of status %d, want %q", l, err, statusOf(err), tt.err)
				}
				return
			}
			if err != nil || l.url != tt.url || l.from != tt.from || l.argv != (tt.flag != "" && tt.flag[0] != '@') {
				t.Errorf("%+v, error %v, want %s from %s", l, err, tt.url, tt.from)
			}
			if strings.Contains(l.shown(), "pw") {
				t.Errorf("it is shown as %s", l.shown())
			}
		})
	}
}

// TestDefaultStore is the whole way: the folder is made, and is the user's own.
func TestDefaultStore(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "a b?%c", "state")
	t.Setenv("XDG_STATE_HOME", state)
	holdfastHere("ls").want(t, exitOK, "NAME", "")
	info, err := os.Stat(filepath.Join(state, "holdfast"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(state, "holdfast", "locks.db")); err != nil {
		t.Error(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "file"))
	holdfastHere("ls").want(t, exitUnavailable, "", "the folder of the default store")
}

// TestBadStores: each is one line, and the right status.
func TestBadStores(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	for url, status := range map[string]int{
		"locks.db":                             exitUsage,
		"oracle://u:hunter2Qx@h":               exitUsage,
		"redis://u:hunter2Qx@h:port":           exitUsage,
		"redis://u:hunter2Qx@127.0.0.1:1":      exitUnavailable,
		"sqlite:" + text:                       exitUnavailable,
		"sqlite:" + dir + "/not/there/db":      exitUnavailable,
		"sqlite:/x?journal=off":                exitUsage,
		"redis://u:hunter2Qx@h?password=again": exitUsage,
	} {
		r := holdfastHere("--store", url, "ls")
		if r.status != status || r.out != "" || strings.Count(r.err, "\n") != 1 || strings.Contains(r.err, "hunter2Qx") {
			t.Errorf("%s: %+v, want status %d", url, r, status)
		}
	}
}
