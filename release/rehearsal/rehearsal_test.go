// Package rehearsal_test publishes the modules of this tree in a file tree of zips, as a
// release publishes them, and lets programs of strangers take them from there. It builds
// each store anew; scripts/test does not run it.
//
//	go test ./rehearsal -timeout 60m
package rehearsal_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/holdfast-go/holdfast/internal/testkit/programs"
)

// rehearsed is the version under which the modules of this tree are published in a file
// tree. No version that is published elsewhere has this name.
const rehearsed = "v0.0.1-rehearsal"

// publish does with a copy of this tree what a release does with a commit: each tagged
// module requires the others of one version and replaces none. It then writes each one as
// the zip that a proxy would make of its tag.
func publish(t *testing.T) programs.Modules {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tree, proxy := t.TempDir(), t.TempDir()
	copyFiles(t, root, tree)
	m := programs.Modules{Mod: "require " + programs.Library + " " + rehearsed + "\n"}
	workspace := []string{"GOWORK=" + filepath.Join(tree, "go.work")}
	command(t, tree, workspace, "scripts/require", rehearsed)
	for folder := range strings.Lines(command(t, tree, workspace, "scripts/require", "-l")) {
		folder = filepath.Join(tree, strings.TrimSpace(folder))
		m.Paths = append(m.Paths, writeZip(t, folder, proxy))
		sum, err := os.ReadFile(filepath.Join(folder, "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		m.Sums = append(m.Sums, sum...)
	}
	// Modules of others come from the cache of this machine, or from where it gets them.
	// The cache of the modules that the programs use is the test's own: it ends with the
	// test.
	public := strings.TrimSpace(command(t, root, nil, "go", "env", "GOPROXY"))
	cache := strings.TrimSpace(command(t, root, nil, "go", "env", "GOMODCACHE"))
	m.Env = []string{
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE=" + t.TempDir(), "GONOSUMDB=" + programs.Library + "," + programs.Library + "/*",
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache/download") + "," + public,
	}
	return m
}

// copyFiles copies the files of a work tree that git has or would take.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	for name := range strings.SplitSeq(command(t, from, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		info, err := os.Lstat(filepath.Join(from, name))
		if name == "" || err != nil || !info.Mode().IsRegular() {
			continue // removed, and not committed yet; no link has a part in a zip
		}
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// writeZip adds the module in a folder to the tree of a proxy, and returns its path.
func writeZip(t *testing.T, folder, proxy string) (path string) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mod, []byte("\nreplace")) {
		t.Errorf("%s/go.mod has replace lines: go install refuses its commands", folder)
	}
	path = modfile.ModulePath(mod)
	var zip bytes.Buffer
	if err := modzip.CreateFromDir(&zip, module.Version{Path: path, Version: rehearsed}, folder); err != nil {
		t.Fatal(err)
	}
	versions := filepath.Join(proxy, path, "@v")
	if err := os.MkdirAll(versions, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"list":              []byte(rehearsed + "\n"),
		rehearsed + ".info": fmt.Appendf(nil, `{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, rehearsed),
		rehearsed + ".mod":  mod,
		rehearsed + ".zip":  zip.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestRelease checks that programs take the core and one store from the zips of a release
// with nothing else, and build; and that the command installs by its version, as
// docs/releases.md has it, and holds a lock.
func TestRelease(t *testing.T) {
	m := publish(t)
	t.Run("programs", func(t *testing.T) { m.Check(t, true) })
	t.Run("command", func(t *testing.T) {
		bin := t.TempDir()
		holdfast := filepath.Join(bin, "holdfast")
		command(t, bin, append(m.Env, "GOBIN="+bin, "GOFLAGS=-modcacherw", "CGO_ENABLED=0"), "go", "install", programs.Library+"/cmd/holdfast@"+rehearsed)
		if said := command(t, bin, nil, holdfast, "version"); !strings.Contains(said, rehearsed) {
			t.Errorf("holdfast version prints %q", said)
		}
		if said := command(t, bin, nil, holdfast, "--store", "sqlite:"+filepath.Join(bin, "locks.db"), "run", "x", "--", "echo", "held"); said != "held\n" {
			t.Errorf("holdfast run prints %q", said)
		}
	})
}

// command runs a command that must succeed, and returns what it prints.
func command(t *testing.T, folder string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	var report strings.Builder
	cmd.Stderr = &report
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, report.String())
	}
	return string(out)
}
