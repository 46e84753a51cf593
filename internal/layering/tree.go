// Package layering reads the source of the workspace's modules as data and checks the rules that
// the compiler does not know: which package may import which, and which duties
// every file has to its reader. Each rule carries its reason, so that the
// author of a breach learns why the rule exists. The package's own test runs
// the rules on this tree; nothing else uses it.
package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Tree is the source of the workspace's modules, read without regard to build constraints: a rule
// holds on every operating system or it does not hold.
type Tree struct {
	Module   string // the path of the module at the top
	Modules  []Module
	Packages []*Package
	Texts    []Text   // every text file, Go or not
	Names    []string // every file
	fset     *token.FileSet
}

// Package is one folder with Go files.
type Package struct {
	Path  string // relative to the root; "." is the root package
	Name  string // as the package clause of its non-test files says
	Files []*File
}

// File is one parsed Go file.
type File struct {
	Path  string // relative to the module's root
	Test  bool
	Lines int
	AST   *ast.File
}

// Text is one file as bytes.
type Text struct {
	Path string
	Data []byte
}

// Read parses the modules that fsys has in its go.work. Other modules, testdata and
// folders whose name begins with '.' or '_' are passed over as Go packages, as
// the go command does, but their files are among Texts. Files below .git and files
// that the module's .gitignore names, such as the output of builds, are left out.
func Read(fsys fs.FS) (*Tree, error) {
	modules, err := readModules(fsys)
	if err != nil {
		return nil, err
	}
	ignore, err := readIgnored(fsys)
	if err != nil {
		return nil, err
	}
	t := &Tree{Module: modules[0].Path, Modules: modules, fset: token.NewFileSet()}
	byDir := map[string]*Package{}
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path.Base(p) == ".git" || ignore.has(p, true)):
			return fs.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || p == ".git" || ignore.has(p, false): // in a worktree, .git is a file
			return nil
		}
		t.Names = append(t.Names, p)
		data, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		if slices.Contains(data[:min(len(data), 8000)], 0) {
			return nil // not a text
		}
		t.Texts = append(t.Texts, Text{Path: p, Data: data})
		if path.Ext(p) != ".go" || !t.isPackageDir(fsys, path.Dir(p)) {
			return nil
		}
		return t.add(byDir, p, data)
	})
	return t, err
}

func (t *Tree) add(byDir map[string]*Package, p string, data []byte) error {
	f, err := parser.ParseFile(t.fset, p, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(p)
	pkg := byDir[dir]
	if pkg == nil {
		pkg = &Package{Path: dir}
		byDir[dir] = pkg
		t.Packages = append(t.Packages, pkg)
	}
	test := strings.HasSuffix(p, "_test.go")
	if !test || pkg.Name == "" {
		pkg.Name = strings.TrimSuffix(f.Name.Name, "_test")
	}
	pkg.Files = append(pkg.Files, &File{
		Path: p, Test: test, AST: f,
		Lines: strings.Count(string(data), "\n"),
	})
	return nil
}

// isPackageDir reports whether the go command would take Go files in dir for a
// package of a module.
func (t *Tree) isPackageDir(fsys fs.FS, dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		base := path.Base(dir)
		if base[0] == '.' || base[0] == '_' || base == "testdata" {
			return false
		}
		if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
			return slices.ContainsFunc(t.Modules, func(m Module) bool { return m.Dir == dir })
		}
	}
	return true
}

// Package returns the package at a path relative to the root, or nil.
func (t *Tree) Package(p string) *Package {
	for _, pkg := range t.Packages {
		if pkg.Path == p {
			return pkg
		}
	}
	return nil
}

// Code returns the files that are not tests.
func (p *Package) Code() []*File {
	return slices.DeleteFunc(slices.Clone(p.Files), func(f *File) bool { return f.Test })
}

// Imports returns the imports of the package's non-test files, each once and
// sorted: packages of the module by their path relative to its root, all others
// as they are written.
func (t *Tree) Imports(p *Package) (own, others []string) {
	for _, f := range p.Code() {
		for _, spec := range f.AST.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // the parser has refused it before
			}
			if name == t.Module {
				own = append(own, ".")
			} else if rest, ok := strings.CutPrefix(name, t.Module+"/"); ok {
				own = append(own, rest)
			} else {
				others = append(others, name)
			}
		}
	}
	slices.Sort(own)
	slices.Sort(others)
	return slices.Compact(own), slices.Compact(others)
}

// Reach returns the packages of the module that p's non-test code depends on,
// directly or not, each with one way to it.
func (t *Tree) Reach(p *Package) map[string][]string {
	ways := map[string][]string{}
	var visit func(*Package, []string)
	visit = func(at *Package, way []string) {
		own, _ := t.Imports(at)
		for _, name := range own {
			next := t.Package(name)
			if next == nil || ways[name] != nil {
				continue
			}
			ways[name] = append(slices.Clone(way), name)
			visit(next, ways[name])
		}
	}
	visit(p, []string{p.Path})
	return ways
}

// std reports whether an import is of the standard library: its first element
// is not a host name. "C" is not of the library; it is cgo.
func std(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return first != "C" && !strings.Contains(first, ".")
}
