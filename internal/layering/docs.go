package layering

import (
	"fmt"
	"go/ast"
	"iter"
	"slices"
	"strings"
)

var docRules = []Rule{
	{"package comments", "the first thing a reader asks is what a package is for", checkPackageDocs},
	{"examples", "an example is documentation that cannot be wrong for long", checkExamples},
	{"doc comments", "what is exported is a promise, and a promise is written down", checkExportedDocs},
}

func checkPackageDocs(t *Tree) (bad []string) {
next:
	for _, p := range t.Packages {
		for _, f := range p.Files {
			// A package of tests alone has its package comment in a test file.
			if (!f.Test || len(p.Code()) == 0) && strings.TrimSpace(f.AST.Doc.Text()) != "" {
				continue next
			}
		}
		bad = append(bad, "package "+p.Path)
	}
	return bad
}

func checkExamples(t *Tree) (bad []string) {
next:
	for _, p := range t.Packages {
		if !public(p) || len(p.Code()) == 0 {
			continue
		}
		for _, f := range p.Files {
			for _, d := range f.AST.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.Test && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Example") {
					continue next
				}
			}
		}
		bad = append(bad, "package "+p.Path)
	}
	return bad
}

func checkExportedDocs(t *Tree) (bad []string) {
	for _, p := range t.Packages {
		if p.Name == "main" {
			continue
		}
		for _, f := range p.Code() {
			for _, d := range f.AST.Decls {
				for name, node := range undocumented(d) {
					bad = append(bad, fmt.Sprintf("%s: %s", t.at(node), name))
				}
			}
		}
	}
	return bad
}

// undocumented yields the exported identifiers of a declaration that have no
// comment. A comment above a group of constants or variables counts for all of
// them; the comment of a struct counts for its fields.
func undocumented(d ast.Decl) iter.Seq2[string, ast.Node] {
	return func(yield func(string, ast.Node) bool) {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				recv := receiver(d.Recv.List[0].Type)
				if !ast.IsExported(recv) {
					return
				}
				name = recv + "." + name
			}
			if d.Name.IsExported() && d.Doc.Text() == "" {
				yield(name, d)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() && spec.Doc.Text() == "" && (d.Lparen.IsValid() || d.Doc.Text() == "") {
						if !yield(spec.Name.Name, spec) {
							return
						}
					}
					if !methods(spec, yield) {
						return
					}
				case *ast.ValueSpec:
					said := spec.Doc.Text() + spec.Comment.Text() + d.Doc.Text()
					for _, id := range spec.Names {
						if id.IsExported() && said == "" && !yield(id.Name, id) {
							return
						}
					}
				}
			}
		}
	}
}

// methods yields the exported methods of an exported interface that have no
// comment while others have one. Where none has one, the interface's own
// comment counts for all, as for an interface that repeats the methods of
// another type.
func methods(spec *ast.TypeSpec, yield func(string, ast.Node) bool) bool {
	it, ok := spec.Type.(*ast.InterfaceType)
	if !ok || !spec.Name.IsExported() {
		return true
	}
	silent := func(m *ast.Field) bool { return m.Doc.Text()+m.Comment.Text() == "" }
	if !slices.ContainsFunc(it.Methods.List, func(m *ast.Field) bool { return !silent(m) }) {
		return true
	}
	for _, m := range it.Methods.List {
		for _, id := range m.Names {
			if id.IsExported() && silent(m) && !yield(spec.Name.Name+"."+id.Name, id) {
				return false
			}
		}
	}
	return true
}

// receiver returns the name of a method's type, without star and parameters.
func receiver(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// production yields the non-test files of production packages.
func (t *Tree) production() iter.Seq2[*Package, *File] {
	return func(yield func(*Package, *File) bool) {
		for _, p := range t.Packages {
			if !production(p.Path) {
				continue
			}
			for _, f := range p.Code() {
				if !yield(p, f) {
					return
				}
			}
		}
	}
}

// at returns the position of a node.
func (t *Tree) at(n ast.Node) string {
	pos := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", pos.Filename, pos.Line)
}
