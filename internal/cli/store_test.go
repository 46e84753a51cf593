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
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(dir, "sub", "store")
	if err := os.WriteFile(local, []byte("rediss://h?ca=a%20b.pem&key=/k&timeout=1s"), 0o600); err != nil {
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
		{name: "relative in a file", file: local, url: "rediss://h?ca=" + dir + "/sub/a%20b.pem&key=/k&timeout=1s", from: "--store-file"},
		{name: "relative certificate", flag: "postgres://h/db?sslrootcert=ca.pem&sslmode=verify-full",
			url: "postgres://h/db?sslrootcert=" + dir + "/ca.pem&sslmode=verify-full", from: "--store"},
		{name: "relative", flag: "sqlite:my%20locks.db?sync=normal", url: "sqlite:" + dir + "/my%20locks.db?sync=normal", from: "--store"},
		{name: "absolute", flag: "sqlite:/x/y", url: "sqlite:/x/y", from: "--store"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv(storeVar, tt.env)
			}
			a := newApp()
			for flag, value := range map[string]string{"store": tt.flag, "store-file": tt.file} {
				if value != "" {
					if err := a.root.PersistentFlags().Set(flag, value); err != nil {
						t.Fatal(err)
					}
				}
			}
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

// TestF133_EmptyStoreIsRefused: a flag or a variable that is set and empty was
// made of one that is not set. No verb takes another store in its place.
func TestF133_EmptyStoreIsRefused(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv(storeVar, "memory:elsewhere")
	for flag, value := range map[string]string{"--store": "", "--store-file": "", "--store=": "@"} {
		for _, verb := range [][]string{
			{"run", "a", "--", "true"}, {"ls"}, {"show", "a"}, {"watch"}, {"break", "a"}, {"doctor"}, {"torture"}, {"bench"}, {"schema", "mysql"},
		} {
			args := []string{flag, value}
			if strings.HasSuffix(flag, "=") {
				args = []string{flag + value}
			}
			holdfastHere(append(args, verb...)...).want(t, exitUsage, "", strings.TrimSuffix(flag, "=")+" is set and empty")
		}
	}
	t.Setenv(storeVar, "")
	holdfastHere("run", "a", "--", "true").want(t, exitUsage, "", "HOLDFAST_STORE is set and empty")
	holdfastHere("--store", "memory:", "ls").want(t, exitOK, "", "") // the flag counts first
}

// TestF133_DefaultStoreIsPrinted: a variable that is not set is said, and the store
// that is used in its place.
func TestF133_DefaultStoreIsPrinted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	want := "holdfast: no --store, and HOLDFAST_STORE is not set: using sqlite:" + filepath.Join(dir, "holdfast", "locks.db")
	holdfastHere("ls").want(t, exitOK, "NAME", want)
	r := holdfastHere("--json", "ls").want(t, exitOK, "", "")
	if o := objects(t, r.err); len(o) != 1 || o[0]["event"] != "store" || o[0]["store"] == "" {
		t.Errorf("%v", o)
	}
	if r := holdfastHere("--store", "memory:", "ls"); r.err != "" {
		t.Errorf("it said %q of a store that was named", r.err)
	}
	run(t, "run", "a", "--", "true").want(t, 0, "", "holdfast: no --store, and HOLDFAST_STORE is not set: using sqlite:")
	if r := run(t, "run", "--quiet", "a", "--", "true").want(t, 0, "", ""); r.err != "" {
		t.Errorf("with --quiet it said %q", r.err)
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

// TestBadStoresAreRefused: each is one line, and the right status.
func TestBadStoresAreRefused(t *testing.T) {
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
		"sqlite:" + dir:                        exitUsage, // as sqlite:/, which its text shows
		"sqlite:" + filepath.Dir(dir) + "/":    exitUsage,
		"sqlite:/x?journal=off":                exitUsage,
		"redis://u:hunter2Qx@h?password=again": exitUsage,
	} {
		r := holdfastHere("--store", url, "ls")
		if r.status != status || r.out != "" || strings.Count(r.err, "\n") != 1 || strings.Contains(r.err, "hunter2Qx") {
			t.Errorf("%s: %+v, want status %d", url, r, status)
		}
	}
}
