package layering

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// WordRule is a rule of writing whose breaches are counted, because much older
// text breaks it: the counts may only fall. docs/glossary.md has the rules in
// words.
type WordRule struct {
	Name   string
	Reason string
	find   func(t *Tree, found func(folder, place string))
}

// WordRules returns the rules whose breaches are counted.
func WordRules() []WordRule {
	return []WordRule{
		{"G1", "godoc and editors show a comment beside the name; a noun or a verb says at once which kind of thing it is", findDocs},
		{"G2", "a clause as a subject makes the reader wait for the verb and guess the actor", findClauses},
		{"G3", "two words for one thing look like two things", findReplaced},
		{"G4", "a name that ends in Locked says so at each call", findLocked},
		{"G5", "the name of a failed test is all that a report has room for", findTests},
		{"G6", "an error is read by somebody in a hurry", findErrors},
	}
}

// vague matches the continuations of a comment that follow the name without
// saying which kind of thing it is.
var vague = regexp.MustCompile(`^(?:is|are) (?:what|who|whom|whose|how|where|when|whether|those who|those whom|for (?:how|what|who)|to (?:what|which))\b`)

func findDocs(t *Tree, found func(folder, place string)) {
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, d := range f.AST.Decls {
				for name, doc := range docs(d) {
					text := strings.Join(strings.Fields(doc.Text()), " ")
					if text == "" || strings.HasPrefix(text, "Deprecated:") {
						continue
					}
					rest, named := strings.CutPrefix(text, name)
					for _, article := range []string{"A ", "An ", "The "} {
						if !named {
							rest, named = strings.CutPrefix(text, article+name)
						}
					}
					rest = strings.TrimPrefix(rest, "()")
					if !named || rest != "" && !strings.ContainsAny(rest[:1], " ,:.[('") || vague.MatchString(strings.TrimSpace(rest)) {
						found(p.Path, fmt.Sprintf("%s: %s", t.at(doc), name))
					}
				}
			}
		}
	}
}

// docs yields the documented names of a declaration and their comments. The
// comment of a group belongs to none of its names.
func docs(d ast.Decl) func(yield func(string, *ast.CommentGroup) bool) {
	return func(yield func(string, *ast.CommentGroup) bool) {
		if fn, ok := d.(*ast.FuncDecl); ok {
			yield(fn.Name.Name, fn.Doc)
			return
		}
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok == token.IMPORT {
			return
		}
		for _, spec := range g.Specs {
			var doc *ast.CommentGroup
			var names []*ast.Ident
			switch s := spec.(type) {
			case *ast.TypeSpec:
				doc, names = s.Doc, []*ast.Ident{s.Name}
			case *ast.ValueSpec:
				doc, names = s.Doc, s.Names
			}
			if !g.Lparen.IsValid() {
				doc = g.Doc
			}
			if len(names) == 1 && !yield(names[0].Name, doc) {
				return
			}
		}
	}
}

var clause = regexp.MustCompile(`^(?i:who|whoever|whom|whose|what)\b`)

func findClauses(t *Tree, found func(folder, place string)) {
	t.prose(func(folder, file string, s sentence) {
		// On a page, a sentence has a capital; cells of tables are seldom sentences.
		fragment := strings.HasSuffix(file, ".md") && s.text[0] == 'w'
		if clause.MatchString(s.text) && !s.asks && !fragment {
			found(folder, fmt.Sprintf("%s:%d: %s", file, s.line, short(s.text)))
		}
	})
}

var proseWord = regexp.MustCompile(`[A-Za-z]+(?:-[A-Za-z]+)*`)

func findReplaced(t *Tree, found func(folder, place string)) {
	_, words := t.glossary()
	for p, f := range t.production() {
		for _, w := range words {
			if w.in(strings.TrimSuffix(path.Base(f.Path), ".go")) {
				found(p.Path, fmt.Sprintf("%s: the file's name has %q: write %q", f.Path, w.word, w.term))
			}
		}
		for id := range declared(f.AST) {
			for _, w := range words {
				if w.in(id.Name) {
					found(p.Path, fmt.Sprintf("%s: %s has %q: write %q", t.at(id), id.Name, w.word, w.term))
				}
			}
		}
	}
	words = slices.DeleteFunc(words, func(w replaced) bool { return !w.prose })
	t.prose(func(folder, file string, s sentence) {
		for _, said := range proseWord.FindAllString(strings.ToLower(s.text), -1) {
			for _, w := range words {
				if said == w.word || said == w.word+"s" {
					found(folder, fmt.Sprintf("%s:%d: %q: write %q", file, s.line, said, w.term))
				}
			}
		}
	})
}

// declared yields the identifiers that a file declares, at every level.
func declared(f *ast.File) func(yield func(*ast.Ident) bool) {
	return func(yield func(*ast.Ident) bool) {
		more := true
		all := func(ids []*ast.Ident) {
			for _, id := range ids {
				more = more && (id.Name == "_" || yield(id))
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				all([]*ast.Ident{n.Name})
			case *ast.TypeSpec:
				all([]*ast.Ident{n.Name})
			case *ast.ValueSpec:
				all(n.Names)
			case *ast.Field:
				all(n.Names)
			case *ast.RangeStmt:
				if n.Tok == token.DEFINE {
					all(idents(n.Key, n.Value))
				}
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					all(idents(n.Lhs...))
				}
			}
			return more
		})
	}
}

func idents(exprs ...ast.Expr) (all []*ast.Ident) {
	for _, e := range exprs {
		if id, ok := e.(*ast.Ident); ok {
			all = append(all, id)
		}
	}
	return all
}

var callerHas = regexp.MustCompile(`(?i)\bcallers? (?:has|have|holds?) (?:the )?(?:\w+\.)?(?:mu|mutex|lock)\b|(?i)\bcallers? (?:has|have) \w+\.mu\b`)

func findLocked(t *Tree, found func(folder, place string)) {
	t.prose(func(folder, file string, s sentence) {
		if strings.HasSuffix(file, ".go") && callerHas.MatchString(s.text) {
			found(folder, fmt.Sprintf("%s:%d: %s", file, s.line, short(s.text)))
		}
	})
}

var testForm = regexp.MustCompile(`^Test((?:F[0-9]+_?)*)_?(.*)$`)

func findTests(t *Tree, found func(folder, place string)) {
	for _, p := range t.Packages {
		known := map[string]bool{}
		for _, f := range p.Files {
			for id := range declared(f.AST) {
				known[strings.ToLower(id.Name)] = true
			}
		}
		for _, f := range p.Files {
			for _, d := range f.AST.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !f.Test || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
					continue
				}
				rest := testForm.FindStringSubmatch(fn.Name.Name)[2]
				if len(wordsOf(rest)) < 2 && !known[strings.ToLower(rest)] {
					found(p.Path, fmt.Sprintf("%s: %s", t.at(fn), fn.Name.Name))
				}
			}
		}
	}
}

var (
	makesErrors = []string{"errors.New", "fmt.Errorf", "driver.Errorf", "driver.NotReady", "usage", "fail"}
	badError    = regexp.MustCompile(`(?i)\bthe (?:most|least) is\b|\bfor us\b|^(?:who|whoever|whom|whose|what)\b|\.$`)
)

func findErrors(t *Tree, found func(folder, place string)) {
	for p, f := range t.production() {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !slices.Contains(makesErrors, callee(call.Fun)) {
				return true
			}
			for _, arg := range call.Args {
				lit, ok := arg.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				if text, err := strconv.Unquote(lit.Value); err == nil && badError.MatchString(text) {
					found(p.Path, fmt.Sprintf("%s: %s", t.at(lit), short(text)))
				}
				break // the other arguments are values
			}
			return true
		})
	}
}

func callee(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name + "." + e.Sel.Name
		}
	}
	return ""
}

// short keeps a text recognisable on a line of its own.
func short(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "..."
	}
	return s
}
