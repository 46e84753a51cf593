package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// target is a system that gets a binary.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// binary returns the name of the command's file.
func (t target) binary() string {
	if t.os == "windows" {
		return "holdfast.exe"
	}
	return "holdfast"
}

// allTargets are the systems of a release, ordered as the folder lists them.
var allTargets = []target{
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"freebsd", "amd64"}, {"freebsd", "arm64"},
	{"linux", "amd64"}, {"linux", "arm64"},
	{"windows", "amd64"},
}

// release is a release that is being made.
type release struct {
	version  string    // with its v
	revision string    // 12 hexadecimal digits, with "+changes" if the tree had any
	date     time.Time // of the commit, the time of every file
	root     string    // folder of the library's module
	out      string    // folder of the release
	stage    string    // folder of what goes into archives and packages
	targets  []target
}

// newRelease checks the arguments and the tree, and makes the folders.
func newRelease(version, root, out, only string, changes bool) (*release, error) {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return nil, fmt.Errorf("version %q is wrong: give all of vMAJOR.MINOR.PATCH, and -PRERELEASE if it is one", version)
	}
	r := &release{version: version}
	var err error
	if r.targets, err = chosen(only); err != nil {
		return nil, err
	}
	if r.root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if err := r.readTree(changes); err != nil {
		return nil, err
	}
	if files, err := os.ReadDir(r.out); err == nil && len(files) > 0 {
		return nil, fmt.Errorf("folder %s is not empty", r.out)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, err
	}
	r.stage, err = os.MkdirTemp("", "holdfast-release-")
	return r, err
}

// chosen returns the targets that only names, or all.
func chosen(only string) ([]target, error) {
	if only == "" {
		return allTargets, nil
	}
	named := map[string]bool{}
	for name := range strings.SplitSeq(only, ",") {
		named[name] = true
	}
	var targets []target
	for _, t := range allTargets {
		if named[t.String()] {
			targets = append(targets, t)
			delete(named, t.String())
		}
	}
	for name := range named {
		return nil, fmt.Errorf("target %q is unknown: choose among %v", name, allTargets)
	}
	return targets, nil
}

// readTree sets the revision and its date.
func (r *release) readTree(changes bool) error {
	said, err := r.output("git", "log", "-1", "--abbrev=12", "--format=%h %ct")
	if err != nil {
		return err
	}
	revision, seconds, _ := strings.Cut(strings.TrimSpace(said), " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("date of the commit is wrong: %w", err)
	}
	r.revision, r.date = revision, time.Unix(unix, 0).UTC()
	status, err := r.output("git", "status", "--porcelain")
	switch {
	case err != nil:
		return err
	case status == "":
	case !changes:
		return errors.New("the tree has uncommitted changes: commit them, or give -changes for a trial")
	default:
		r.revision += "+changes"
	}
	return nil
}

// output runs a command in the library's module and returns its standard output.
func (r *release) output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), r.workspace())
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(failed.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return string(out), nil
}
