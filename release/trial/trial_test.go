// Package trial makes releases, and installs and uses what is in them. It needs
// Debian 12, root, and the packages that needed names; scripts/test does not run it.
//
//	go test ./trial -timeout 60m
package trial

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var only = flag.String("trial.only", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,freebsd/amd64,freebsd/arm64,windows/amd64",
	"`TARGETS` of the releases; linux/amd64 has to be among them")

var in = flag.String("trial.in", "", "`FOLDER` in which the releases are made and stay; a second run uses those in it again")

const version = "v0.9.8-rc.1"

// needed has the Debian package of each program that the trial runs.
var needed = map[string]string{
	"dpkg": "dpkg", "rpm": "rpm", "unshare": "util-linux", "chroot": "coreutils", "git": "git",
	"man": "man-db", "mandoc": "mandoc", "zsh": "zsh", "fish": "fish", "sha256sum": "coreutils",
	"systemd-analyze": "systemd",
}

// first and second are folders of two releases of one commit.
var first, second string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runAll(m))
}

// runAll makes the releases and runs the tests, and returns the exit status.
func runAll(m *testing.M) int {
	folder := *in
	if folder == "" {
		temporary, err := os.MkdirTemp("", "holdfast-trial-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "trial:", err)
			return 1
		}
		defer os.RemoveAll(temporary)
		folder = temporary
	}
	if err := makeBoth(folder); err != nil {
		fmt.Fprintln(os.Stderr, "trial:", err)
		return 1
	}
	status := m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, "trial:", err)
		return 1
	}
	return status
}

// makeBoth makes the two releases, each from its own clone. The second has a build
// cache, a home folder, a time zone and a umask of its own.
func makeBoth(folder string) error {
	for program, pkg := range needed {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: install the package %s", err, pkg)
		}
	}
	if _, err := os.Stat("/usr/share/bash-completion/bash_completion"); err != nil {
		return fmt.Errorf("%w: install the package bash-completion", err)
	}
	if os.Getuid() != 0 {
		return errors.New("only root can install packages and change the root folder")
	}
	first, second = filepath.Join(folder, "one"), filepath.Join(folder, "another/place/two")
	if _, err := os.Stat(filepath.Join(second, "SHA256SUMS")); err == nil {
		return nil
	}
	program := filepath.Join(folder, "release")
	if err := try("..", nil, "go", "build", "-o", program, "."); err != nil {
		return err
	}
	make := func(out string, env ...string) error {
		clone := out + "-clone"
		if err := try(".", nil, "git", "clone", "-q", "--no-hardlinks", "../..", clone); err != nil {
			return err
		}
		return try(".", env, "sh", "-c", `umask "$UMASK"; exec "$@"`, "sh",
			program, "-root", clone, "-out", out, "-version", version, "-only", *only)
	}
	if err := make(first, "UMASK=022"); err != nil {
		return err
	}
	modules, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	return make(second, "UMASK=077", "TZ=Pacific/Auckland", "LC_ALL=C", "GOFLAGS=-v", "HOME="+filepath.Join(folder, "home"),
		"GOCACHE="+filepath.Join(folder, "cache"), "GOMODCACHE="+strings.TrimSpace(string(modules)))
}

// try runs a command with what it prints on standard output.
func try(folder string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}

// said runs a command that must succeed, and returns what it prints on both
// outputs.
func said(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// inRoot runs a command of the folder root as if that were the whole system.
func inRoot(t *testing.T, root, user string, env []string, command ...string) string {
	t.Helper()
	out, err := rooted(t, root, user, env, command...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v in %s: %v\n%s", command, root, err, out)
	}
	return string(out)
}

// rooted returns a command of the folder root, which its process becomes in the end,
// so that the signals to the process are the command's.
func rooted(t *testing.T, root, user string, env []string, command ...string) *exec.Cmd {
	t.Helper()
	for _, folder := range []string{"proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"-m", "sh", "-c",
		`mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && user=$1 && shift && export PATH="$IMAGE_PATH" && exec /usr/sbin/chroot --userspec="$user" "$0" "$@"`,
		root, user}, command...)
	cmd := exec.Command("unshare", args...)
	cmd.Dir = "/"
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			e = "IMAGE_PATH=" + path
		}
		cmd.Env = append(cmd.Env, e)
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	return cmd
}

// awaitReady waits until the lock server at a host answers that it is ready.
func awaitReady(t *testing.T, host string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get("http://" + host + "/readyz")
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatal("the server is not ready after a minute")
}

// one returns the only file of the first release that fits pattern.
func one(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(first, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v %v", pattern, files, err)
	}
	return files[0]
}

// unpack writes a tar archive, compressed or not, below a folder.
func unpack(t *testing.T, in io.Reader, folder string) {
	t.Helper()
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	in = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(in); err != nil {
			t.Fatal(err)
		}
	}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, filepath.FromSlash(h.Name))
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, text, 0o644)
			}
		}
		if err == nil {
			err = os.Chmod(path, os.FileMode(h.Mode&0o777)|map[bool]os.FileMode{true: os.ModeSticky}[h.Mode&0o1000 != 0])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// archive unpacks the archive of the binary that runs here, and returns its folder.
func archive(t *testing.T) string {
	t.Helper()
	name := one(t, "*_linux_amd64.tar.gz")
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	folder := t.TempDir()
	unpack(t, f, folder)
	return filepath.Join(folder, strings.TrimSuffix(filepath.Base(name), ".tar.gz"))
}
