// Command docsgen writes the parts of the documentation that the code knows
// better: the table of stores from their Traits, the reference of the command
// from its own help, the table of faults from the tests that are named after
// them, the tables of servers from the record of runs that passed, and source
// files that are shown as they are.
//
// Usage:
//
//	go run ./internal/docsgen          # in the module's root: writes
//	go run ./internal/docsgen -check   # fails, naming the files that are out of date
//	go run ./internal/docsgen -tests   # prints the tests that docs/faults.md counts
//	go run ./internal/docsgen -handover URL   # plays docs/handover.json on this store
//
// In README.md and the Markdown below docs, it replaces the text between
//
//	<!-- generated:NAME ARGUMENT -->
//	<!-- /generated -->
//
// The names are: traits, the table of stores; code FILE, a Go file of the
// module from its package clause on; versions PACKAGE, the servers on which all
// tests of a package passed; supported, the oldest and the newest of these; peers
// TABLE, a few columns of a table of docs/performance.md; and outages, a few columns
// of one of docs/safety.md. docs/cli.md, docs/faults.md, docs/timeline.svg and
// docs/handover.svg are generated as a whole.
//
// Its tests compile every other block of Go in those pages; a comment before
// such a block declares the names that the block uses without a declaration:
// see snippets_test.go. Another test runs the sessions (console) after a comment
// that has the commands before them: see console_test.go.
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

// reference is the file of the command's reference, which is generated as a
// whole.
const reference = "docs/cli.md"

// required are the blocks that must exist: a table that no page shows is not
// kept true.
var required = map[string]string{
	"docs/guarantees.md": "traits",
}

func main() {
	root := flag.String("root", ".", "the module's root")
	check := flag.Bool("check", false, "write nothing; fail when something is out of date")
	tests := flag.Bool("tests", false, "write nothing; print the tests that docs/faults.md counts")
	played := flag.String("handover", "", "play a holder's end on the store of this `URL`, and write "+recorded)
	store := flag.String("store", "", "the name and version of that store, for the picture")
	flag.Parse()
	if *played != "" {
		if err := record(*root, *played, *store); err != nil {
			fmt.Fprintln(os.Stderr, "docsgen:", err)
			os.Exit(1)
		}
	}
	if *tests {
		list, err := faultTests(os.DirFS(*root))
		if err == nil {
			_, err = os.Stdout.Write(list)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "docsgen:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "docsgen:", err)
		os.Exit(1)
	}
}

// run updates the documentation below root; with check, it returns an error
// that names the files that are out of date.
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

// generate returns the files as they should be.
func generate(fsys fs.FS) (map[string][]byte, error) {
	kinds := map[string]kind{
		"traits":    func(string) (string, error) { return traitsTable(stores), nil },
		"code":      func(file string) (string, error) { return code(fsys, file) },
		"versions":  func(pkg string) (string, error) { return versionsTable(fsys, pkg) },
		"supported": func(string) (string, error) { return supportedTable(fsys) },
		"peers":     func(name string) (string, error) { return peersTable(fsys, name) },
		"outages":   func(string) (string, error) { return outagesTable(fsys) },
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
	files[picture] = timelinePicture()
	if files[handoverPicture], err = drawRecorded(fsys); err != nil {
		return nil, err
	}
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
