package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// library is the path of the library's module, which those of the command and of the
// stores begin with.
const library = "github.com/holdfast-go/holdfast"

// stamped is the package whose variables hold the version.
const stamped = library + "/internal/cli"

// workspace is the setting by which the other modules come from the tree: a tagged commit
// requires them as they will be published.
func (r *release) workspace() string { return "GOWORK=" + filepath.Join(r.root, "go.work") }

// ours reports whether a module is one of this repository.
func ours(path string) bool { return path == library || strings.HasPrefix(path, library+"/") }

// binaryOf returns the path of a target's binary in the stage.
func (r *release) binaryOf(t target) string {
	return filepath.Join(r.stage, "bin", t.os+"_"+t.arch, t.binary())
}

// makeBinaries builds the command for each target, and asks the one that runs
// here for its version.
func (r *release) makeBinaries() error {
	for _, t := range r.targets {
		if err := r.build(t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		if t.os != runtime.GOOS || t.arch != runtime.GOARCH {
			continue
		}
		said, err := exec.Command(r.binaryOf(t), "version").Output()
		want := fmt.Sprintf("holdfast %s (%s), %s, %s\n", r.version, r.revision, runtime.Version(), t)
		if err != nil || string(said) != want {
			return fmt.Errorf("%s: the binary says %q, want %q: %v", t, said, want, err)
		}
	}
	return nil
}

func (r *release) build(t target) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags=-s -w -X "+stamped+".stampedVersion="+r.version+" -X "+stamped+".stampedRevision="+r.revision,
		"-o", r.binaryOf(t), ".")
	cmd.Dir = filepath.Join(r.root, "cmd", "holdfast") // a module of its own
	cmd.Env = append(buildEnv(os.Environ(), t), r.workspace())
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, said)
	}
	return nil
}

// buildEnv returns env without what would change a binary, and with what each
// build of t has in common. The Go release that runs this program builds.
func buildEnv(env []string, t target) []string {
	dropped := map[string]bool{
		"GOFLAGS": true, "GOEXPERIMENT": true, "GODEBUG": true, "GOAMD64": true, "GOARM64": true,
		"GOOS": true, "GOARCH": true, "GOWORK": true, "GOFIPS140": true, "GOTOOLCHAIN": true,
		"CGO_ENABLED": true, "CGO_CFLAGS": true, "CGO_LDFLAGS": true,
	}
	var kept []string
	for _, e := range env {
		if name, _, _ := strings.Cut(e, "="); !dropped[name] {
			kept = append(kept, e)
		}
	}
	return append(kept, "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0",
		"GOFIPS140=off", "GOFLAGS=", "GOTOOLCHAIN="+runtime.Version())
}
