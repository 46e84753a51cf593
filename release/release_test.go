package main

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree makes a repository of one commit, and returns its folder.
func tree(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q"},
		{"-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-q", "--allow-empty", "-m", "m", "--date=2026-11-23T12:00:00Z"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "GIT_COMMITTER_DATE=2026-11-23T12:00:00Z", "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	return folder
}

func TestNewReleaseRefusesBadArguments(t *testing.T) {
	root, empty, full := tree(t), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, make := range map[string]func() (*release, error){
		"version \"\" is wrong":         func() (*release, error) { return newRelease("", root, empty, "", false) },
		"version \"v1\" is wrong":       func() (*release, error) { return newRelease("v1", root, empty, "", false) },
		"version \"1.2.3\" is wrong":    func() (*release, error) { return newRelease("1.2.3", root, empty, "", false) },
		"version \"v1.2.3+b\" is wrong": func() (*release, error) { return newRelease("v1.2.3+b", root, empty, "", false) },
		"target \"plan9/mips\"":         func() (*release, error) { return newRelease("v1.2.3", root, empty, "plan9/mips", false) },
		"is not empty":                  func() (*release, error) { return newRelease("v1.2.3", root, full, "", false) },
		"git log":                       func() (*release, error) { return newRelease("v1.2.3", "/", empty, "", false) },
	} {
		if r, err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v %v, want %s", r, err, want)
		}
	}
}

func TestNewReleaseTakesCommit(t *testing.T) {
	root := tree(t)
	r, err := newRelease("v1.2.3-rc.1", root, filepath.Join(t.TempDir(), "a/b"), "linux/arm64", false)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(r.stage)
	if want := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC); !r.date.Equal(want) || len(r.revision) != 12 || len(r.targets) != 1 || r.plain() != "1.2.3-rc.1" {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(filepath.Join(root, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := newRelease("v1.2.3", root, t.TempDir(), "", false); err == nil || !strings.Contains(err.Error(), "uncommitted changes") {
		t.Errorf("with a change: %v", err)
	}
	r, err = newRelease("v1.2.3", root, t.TempDir(), "", true)
	if err != nil || !strings.HasSuffix(r.revision, "+changes") || len(r.targets) != len(allTargets) {
		t.Fatalf("%+v %v", r, err)
	}
	defer os.RemoveAll(r.stage)
}

func TestBuildEnvWithoutUsersSettings(t *testing.T) {
	env := buildEnv([]string{"GOFLAGS=-v", "GOAMD64=v3", "GOEXPERIMENT=x", "GOPROXY=off", "CGO_ENABLED=1", "HOME=/h"}, target{"linux", "arm64"})
	for _, want := range []string{"GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64", "GOPROXY=off", "HOME=/h"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing in %v", want, env)
		}
	}
	if slices.Contains(env, "GOEXPERIMENT=x") || slices.Contains(env, "GOFLAGS=-v") {
		t.Errorf("%v", env)
	}
}

func TestTarSameBytesAndOwner(t *testing.T) {
	r := &release{date: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	files := []entry{{"a/", 0o755, nil}, {"a/b", 0o644, []byte("text")}}
	one, err1 := r.tarGzip(files)
	two, err2 := r.tarGzip(files)
	plain, err3 := r.tar(files)
	if err1 != nil || err2 != nil || err3 != nil || !bytes.Equal(one, two) {
		t.Fatalf("%v %v %v: differs", err1, err2, err3)
	}
	in := tar.NewReader(bytes.NewReader(plain))
	for _, want := range []struct {
		name string
		kind byte
	}{{"a/", tar.TypeDir}, {"a/b", tar.TypeReg}} {
		h, err := in.Next()
		if err != nil || h.Name != want.name || h.Typeflag != want.kind || h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(r.date) {
			t.Errorf("%+v %v", h, err)
		}
	}
	if _, err := in.Next(); err != io.EOF {
		t.Error(err)
	}
}

func TestSerialIsUUID(t *testing.T) {
	if got := serial([32]byte{1, 2, 3, 4, 5, 6, 0xff, 8, 0xff}); got != "urn:uuid:01020304-0506-8f08-bf00-000000000000" {
		t.Error(got)
	}
}

func TestRootCertificatesAreMany(t *testing.T) {
	if n := bytes.Count(certificates(), []byte("BEGIN CERTIFICATE")); n < 80 {
		t.Errorf("%d certificates", n)
	}
}

// packagesOf makes the packages of a pre-release, of a binary and texts that are none,
// and returns their contents by name.
func packagesOf(t *testing.T) map[string]string {
	t.Helper()
	r := &release{version: "v1.2.3-rc.1", date: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), out: t.TempDir(), stage: t.TempDir(),
		targets: []target{{"freebsd", "amd64"}, {"linux", "arm64"}}}
	binary := r.binaryOf(r.targets[1])
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, bytes.Repeat([]byte("binary"), 1<<20), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LICENSE", "CHANGELOG.md", "man/holdfast.1", "completions/_holdfast"} {
		if err := r.writeText(name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.makePackages(); err != nil {
		t.Fatal(err)
	}
	packages := map[string]string{}
	files, err := os.ReadDir(r.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		packages[f.Name()] = string(data)
	}
	return packages
}

// TestPackagesNamedAsTheirFormatsWant checks the names of packages, and that another
// run in other folders makes the same bytes.
func TestPackagesNamedAsTheirFormatsWant(t *testing.T) {
	packages := packagesOf(t)
	names := slices.Sorted(maps.Keys(packages))
	want := []string{"holdfast-1.2.3~rc.1-1.aarch64.rpm", "holdfast_1.2.3_rc1-r1_aarch64.apk", "holdfast_1.2.3~rc.1-1_arm64.deb"}
	if !slices.Equal(names, want) {
		t.Errorf("made %q, want %q", names, want)
	}
	time.Sleep(1100 * time.Millisecond) // tar has whole seconds
	again := packagesOf(t)
	for _, name := range names {
		if packages[name] != again[name] {
			t.Errorf("%s differs in another run", name)
		}
	}
}
