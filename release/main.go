// Command release makes everything that a version of Holdfast publishes into one
// folder: binaries, archives, packages, an image, bills of materials and
// checksums. It publishes nothing, tags nothing and needs no root, no container
// engine and, once the modules are downloaded, no network.
//
// Usage, in its own folder:
//
//	go run . -version v0.1.0 -out ../dist/v0.1.0
//
// The same revision, version and Go release give the same bytes, on whatever
// machine. docs/releases.md has the rest.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes a release as args say, and writes its steps and files to out.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "", "the `VERSION`, such as v0.1.0")
	root := flags.String("root", "..", "the `FOLDER` of the library's module")
	folder := flags.String("out", "", "the `FOLDER` to make; it must be empty or missing")
	only := flags.String("only", "", "some `TARGETS` instead of all, such as linux/amd64,darwin/arm64")
	changes := flags.Bool("changes", false, "build a tree with uncommitted changes, and say so in the version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q is unknown", flags.Arg(0))
	}
	if *folder == "" {
		return errors.New("flag -out is missing")
	}
	r, err := newRelease(*version, *root, *folder, *only, *changes)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.stage)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"binaries", r.makeBinaries},
		{"texts", r.makeTexts},
		{"archives", r.makeArchives},
		{"bills of materials", r.makeBOMs},
		{"packages", r.makePackages},
		{"image", r.makeImage},
		{"checksums", r.makeChecksums},
	} {
		began := time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(out, "%-20s %6.1f s\n", step.name, time.Since(began).Seconds())
	}
	return r.list(out)
}

// list writes the files of the release with their sizes.
func (r *release) list(out io.Writer) error {
	fmt.Fprintf(out, "\n%s of %s, %s, in %s:\n", r.version, r.revision, runtime.Version(), r.out)
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%d\t %s\n", info.Size(), f.Name())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, t := range r.targets {
		if t.os == "windows" {
			fmt.Fprintln(out, "On Windows the command prints its version alone: it needs process groups and signals.")
			break
		}
	}
	return nil
}

// path returns the path of a file of the release.
func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// plain is the version without its v.
func (r *release) plain() string { return strings.TrimPrefix(r.version, "v") }
