// Command platforms checks that what the workspace builds on this system compiles on
// others too. It reads the types of all packages from their sources, those of their
// dependencies with them, as the compiler does before it writes code: no code is
// written and nothing is linked, which takes ten times as long.
//
// Usage:
//
//	go run ./internal/platforms [PLATFORM...]
//
// A platform is an operating system, or one and a processor: freebsd, linux/arm64.
// Without any these are darwin, freebsd and windows; all are read without cgo.
// On Windows only what is meant to compile there is read.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// everywhere are the platforms that are checked when none is named.
var everywhere = []string{"darwin", "freebsd", "windows"}

func main() {
	names := os.Args[1:]
	if len(names) == 0 {
		names = everywhere
	}
	failed := false
	files := newSources()
	for _, name := range names {
		patterns, err := patternsFor(name)
		var packages int
		if err == nil {
			packages, err = check(files, name, "", patterns...)
		}
		if err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "platforms: %s: %v\n", name, err)
			continue
		}
		fmt.Printf("%s: %d packages\n", name, packages)
	}
	if failed {
		os.Exit(1)
	}
}

// check reads all packages that the patterns match, and theirs, as they are on a
// platform, and returns how many there are. The folder is where the go command runs.
func check(files *sources, platform, dir string, patterns ...string) (int, error) {
	system, processor, _ := strings.Cut(platform, "/")
	if processor == "" {
		processor = runtime.GOARCH
	}
	list, err := list(dir, []string{"GOOS=" + system, "GOARCH=" + processor}, patterns...)
	if err != nil {
		return 0, err
	}
	return len(list), newChecker(files, processor, list).all()
}

// goPackage is a package, as go list describes it.
type goPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	Imports         []string
	ImportMap       map[string]string
	Standard        bool
	Module          *struct{ GoVersion string }
}

// list returns the packages that the patterns match and all that these import, each
// after those that it imports.
func list(dir string, env []string, patterns ...string) ([]*goPackage, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,EmbedFiles,Imports,ImportMap,Standard,Module"}, patterns...)...)
	cmd.Dir = dir
	cmd.Env = append(append(cmd.Environ(), "CGO_ENABLED=0"), env...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &problems)
	}
	var packages []*goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(goPackage)
		err := d.Decode(p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// forWindows matches what compiles on Windows: the library, and a command that says
// that it does not run there.
var forWindows = regexp.MustCompile(`/holdfast(/[a-z]+lock|/driver|/stock|/fence(/.*)?|/cmd/holdfast)?$`)

// patternsFor returns the packages of the workspace that are to compile on a platform.
func patternsFor(platform string) ([]string, error) {
	if !strings.HasPrefix(platform, "windows") {
		return []string{"work"}, nil
	}
	out, err := exec.Command("go", "list", "work").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var patterns []string
	for p := range strings.FieldsSeq(string(out)) {
		if forWindows.MatchString(p) {
			patterns = append(patterns, p)
		}
	}
	return patterns, nil
}
