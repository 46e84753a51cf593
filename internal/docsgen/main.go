// Command docsgen writes the parts of the documentation that the code knows
// better: the table of stores out of their Traits, the reference of the command
// out of its own help, the table of faults out of the tests that are named after
// them, and source files that are shown as they are.
//
// Usage:
//
//	go run ./internal/docsgen          # in the module's root: writes
//	go run ./internal/docsgen -check   # fails, naming what is out of date
//
// In README.md and the Markdown below docs, what stands between
//
//	<!-- generated:NAME ARGUMENT -->
//	<!-- /generated -->
//
// is replaced. The names are: traits, the table of stores; and code FILE, a Go
// file of the module from its package clause on. docs/cli.md and docs/faults.md
// are written whole.
//
// Its tests compile every other block of Go in those pages; what such a block
// takes for granted is declared in a comment before it: see snippets_test.go.
package main

//go:generate go run . -root ../..

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfast-go/holdfast/internal/cli"
)

// reference is the file that is written whole.
const reference = "docs/cli.md"

// required are the blocks that must be there: a table that nobody shows is not
// kept true by anybody.
var required = map[string]string{
	"README.md":          "traits",
	"docs/guarantees.md": "traits",
}

func main() {
	root := flag.String("root", ".", "the module's root")
	check := flag.Bool("check", false, "write nothing; fail when something is out of date")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "docsgen:", err)
		os.Exit(1)
	}
}

// run brings the documentation below root up to date, or says what is not.
func run(root string, check bool) error {
	want, err := generate(os.DirFS(root))
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		file := filepath.Join(root, filepath.FromSlash(name))
		have, readErr := os.ReadFile(file)
		if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
			return readErr
		}
		switch {
		case bytes.Equal(have, want[name]):
		case check:
			err = errors.Join(err, fmt.Errorf("%s is out of date at line %d: run make docs", name, firstDifference(have, want[name])))
		default:
			if err := os.WriteFile(file, want[name], 0o644); err != nil {
				return err
			}
			fmt.Println("wrote", name)
		}
	}
	return err
}

// generate returns the files as they ought to be.
func generate(fsys fs.FS) (map[string][]byte, error) {
	kinds := map[string]kind{
		"traits": func(string) (string, error) { return traitsTable(stores), nil },
		"code":   func(file string) (string, error) { return code(fsys, file) },
	}
	names := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := fs.Glob(fsys, pattern)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	files := map[string][]byte{}
	for _, name := range names {
		if name == reference || name == catalogue {
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		text, used, err := replace(text, kinds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if block := required[name]; block != "" && !slices.Contains(used, block) {
			return nil, fmt.Errorf("%s lacks the block generated:%s", name, block)
		}
		files[name] = text
	}
	for name := range required {
		if files[name] == nil {
			return nil, fmt.Errorf("%s is missing", name)
		}
	}
	files[reference] = commandReference(cli.New())
	faults, err := faultPage(fsys)
	if err != nil {
		return nil, err
	}
	files[catalogue] = faults
	return files, nil
}

func firstDifference(a, b []byte) int {
	as, bs := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range min(len(as), len(bs)) {
		if !bytes.Equal(as[i], bs[i]) {
			return i + 1
		}
	}
	return min(len(as), len(bs)) + 1
}
