package trial

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// use runs the command of a root folder as a newcomer would: its version, and
// commands under a lock of the default store, the SQLite file of the user.
func use(t *testing.T, root, user string, env []string) {
	t.Helper()
	if out := inRoot(t, root, user, env, "/usr/bin/holdfast", "version"); !strings.HasPrefix(out, "holdfast "+version+" (") {
		t.Errorf("version prints %q", out)
	}
	out := inRoot(t, root, user, env, "/usr/bin/holdfast", "run", "job", "--", "/usr/bin/holdfast", "version", "--json")
	var said struct{ Version string }
	line := out[max(0, strings.Index(out, "{")):]
	if err := json.Unmarshal([]byte(line), &said); err != nil || said.Version != version {
		t.Errorf("run printed %q: %v", out, err)
	}
	// The command sees the lock that is held around it.
	out = inRoot(t, root, user, env, "/usr/bin/holdfast", "run", "job", "--", "/usr/bin/holdfast", "--json", "show", "job")
	if !strings.Contains(out, `"pid":`) {
		t.Errorf("show under the lock printed %q", out)
	}
	inRoot(t, root, user, env, "/usr/bin/holdfast", "doctor")
}

// filesOf returns the files below root's usr.
func filesOf(t *testing.T, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "usr"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return files
}

// TestDebInstallsInFreshRoot installs the deb in an empty root folder, verifies and
// uses it, and removes it again.
func TestDebInstallsInFreshRoot(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) string {
		t.Helper()
		return said(t, "dpkg", append([]string{"--root=" + root, "--log=/dev/null"}, args...)...)
	}
	dpkg("--install", one(t, "*_amd64.deb"))
	if out := dpkg("--list", "holdfast"); !strings.Contains(out, "\nii  holdfast ") || !strings.Contains(out, " 0.9.8~rc.1-1 ") {
		t.Errorf("dpkg --list:\n%s", out)
	}
	if out := dpkg("--verify", "holdfast"); out != "" {
		t.Errorf("dpkg --verify:\n%s", out)
	}
	use(t, root, "0:0", []string{"HOME=/root"})
	t.Logf("%d files", len(filesOf(t, root)))
	dpkg("--purge", "holdfast")
	if left := filesOf(t, root); len(left) > 0 {
		t.Errorf("after its removal there are %v", left)
	}
}

// TestRPMInstallsInFreshRoot does the same with the rpm.
func TestRPMInstallsInFreshRoot(t *testing.T) {
	root, name := t.TempDir(), one(t, "*.x86_64.rpm")
	if out := said(t, "rpm", "--checksig", "--nosignature", name); !strings.Contains(out, "digests OK") {
		t.Errorf("rpm --checksig: %s", out)
	}
	out := said(t, "rpm", "--query", "--package", "--info", "--list", name)
	for _, want := range []string{"Version     : 0.9.8~rc.1", "License     : Apache-2.0", "/usr/bin/holdfast", "/usr/share/man/man1/holdfast-run.1.gz"} {
		if !strings.Contains(out, want) {
			t.Errorf("rpm --query lacks %q:\n%s", want, out)
		}
	}
	said(t, "rpm", "--root", root, "--initdb")
	said(t, "rpm", "--root", root, "--install", name)
	said(t, "rpm", "--root", root, "--verify", "holdfast")
	use(t, root, "0:0", []string{"HOME=/root"})
	t.Logf("%d files", len(filesOf(t, root)))
	said(t, "rpm", "--root", root, "--erase", "holdfast")
	if left := filesOf(t, root); len(left) > 0 {
		t.Errorf("after its removal there are %v", left)
	}
	for _, folder := range []string{"usr/share/doc/holdfast", "usr/share/licenses/holdfast"} {
		if _, err := os.Stat(filepath.Join(root, folder)); err == nil {
			t.Errorf("after its removal there is %s", folder)
		}
	}
}

// TestAPKUnpacksInFreshRoot reads the apk as Alpine's apk does: the first of its parts
// describes it and has the sum of the second, whose files work in an empty root folder.
// Debian has no apk that could install it.
func TestAPKUnpacksInFreshRoot(t *testing.T) {
	data, err := os.ReadFile(one(t, "holdfast_0.9.8_rc1-r1_x86_64.apk"))
	if err != nil {
		t.Fatal(err)
	}
	in := bytes.NewReader(data)
	control, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	control.Multistream(false)
	description, err := io.ReadAll(control)
	if err != nil {
		t.Fatal(err)
	}
	contents := data[len(data)-in.Len():]
	for _, want := range []string{
		"pkgname = holdfast\n", "pkgver = 0.9.8_rc1-r1\n", "arch = x86_64\n", "license = Apache-2.0\n",
		fmt.Sprintf("datahash = %x\n", sha256.Sum256(contents)),
	} {
		if !bytes.Contains(description, []byte(want)) {
			t.Errorf("its description lacks %q:\n%s", want, description)
		}
	}
	root := t.TempDir()
	unpack(t, bytes.NewReader(contents), root)
	use(t, root, "0:0", []string{"HOME=/root"})
	for _, file := range []string{"share/man/man1/holdfast-run.1.gz", "share/licenses/holdfast/LICENSE", "share/zsh/site-functions/_holdfast"} {
		if _, err := os.Stat(filepath.Join(root, "usr", file)); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d files", len(filesOf(t, root)))
}

// TestImageEntryPointRuns unpacks the image of this platform, and runs its entry
// point as its configuration says.
func TestImageEntryPointRuns(t *testing.T) {
	f, err := os.Open(one(t, "*_oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	folder := t.TempDir()
	unpack(t, f, folder)
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v %v", manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Platform.String(); strings.Contains(*only, got) && got == "linux/amd64" {
			runImage(t, image)
		}
	}
	if want := strings.Count(*only, "linux/"); len(manifest.Manifests) != want {
		t.Errorf("%d platforms, want %d", len(manifest.Manifests), want)
	}
}

func runImage(t *testing.T, image v1.Image) {
	t.Helper()
	root := t.TempDir()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		unpack(t, r, root)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{root, filepath.Dir(root)} { // an engine's folders can be searched, too
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(config.Config.Entrypoint); got != "[/usr/bin/holdfast]" || config.Config.User != "65532:65532" || len(config.Config.Cmd) > 0 {
		t.Errorf("%+v", config.Config)
	}
	use(t, root, config.Config.User, config.Config.Env) // the default store, in the user's home folder
	serve(t, root, config.Config)
	pem, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(pem) || strings.Count(string(pem), "BEGIN CERTIFICATE") < 80 {
		t.Errorf("%d root certificates", strings.Count(string(pem), "BEGIN CERTIFICATE"))
	}
	t.Logf("%d root certificates", strings.Count(string(pem), "BEGIN CERTIFICATE"))
}

// serve runs the image's entry point as a lock server, lets a client of the same image
// take a lock by it, and ends the server by SIGTERM.
func serve(t *testing.T, root string, config v1.Config) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := rooted(t, root, config.User, config.Env, append(config.Entrypoint, "serve", "--listen", host, "--drain", "10s")...)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // if the test ends early
		_ = ended()
	})
	awaitReady(t, host)
	said := inRoot(t, root, config.User, config.Env, append(config.Entrypoint,
		"--store", "holdfast://"+host, "run", "job", "--", "/usr/bin/holdfast", "--store", "holdfast://"+host, "--json", "show", "job")...)
	if !strings.Contains(said, `"pid":`) {
		t.Errorf("show under the server's lock printed %q", said)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := ended(); err != nil {
		t.Errorf("the server: %v\n%s", err, log.String())
	}
	t.Logf("the server said:\n%s", log.String())
}
