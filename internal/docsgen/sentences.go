package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// sentenceFile is the file that names, for each sentence of the comments on what the root
// package exports, the tests that fail if the sentence is false.
//
// A line without an indent is the name of an identifier, or "package". The lines below
// it, with one tab, are the sentences of its comment, in their order. Each is followed
// by a line with two tabs: names of tests, or the word "description" for a sentence that
// promises nothing. A test of another folder has the folder before it, as in
// redislock.TestIdentity.
const sentenceFile = "internal/docsgen/sentences.txt"

// sentence is one sentence of a comment, with what proves it.
type sentence struct {
	of, text string
	proofs   []string
}

// sentencesOfRoot returns the sentences of the comments of the root package, without proofs,
// by identifier in the order of go doc.
func sentencesOfRoot(fsys fs.FS) ([]sentence, error) {
	names, err := fs.Glob(fsys, "*.go")
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(files, name, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	pkg, err := doc.NewFromFiles(files, parsed, "github.com/holdfast-go/holdfast")
	if err != nil {
		return nil, err
	}
	var all []sentence
	add := func(of, text string) {
		for _, s := range sentencesOf(text) {
			all = append(all, sentence{of: of, text: s})
		}
	}
	values := func(vs []*doc.Value) {
		for _, v := range vs {
			add(strings.Join(v.Names, " "), v.Doc)
			for _, spec := range v.Decl.Specs {
				s := spec.(*ast.ValueSpec)
				add(s.Names[0].Name, s.Doc.Text()+"\n\n"+s.Comment.Text())
			}
		}
	}
	funcs := func(prefix string, fns []*doc.Func) {
		for _, f := range fns {
			add(prefix+f.Name, f.Doc)
		}
	}
	add("package", pkg.Doc)
	values(pkg.Consts)
	values(pkg.Vars)
	funcs("", pkg.Funcs)
	for _, t := range pkg.Types {
		add(t.Name, t.Doc)
		fields(t, add)
		values(t.Consts)
		values(t.Vars)
		funcs("", t.Funcs)
		funcs(t.Name+".", t.Methods)
	}
	return all, nil
}

// fields adds the comments on the exported fields of a struct.
func fields(t *doc.Type, add func(of, text string)) {
	for _, spec := range t.Decl.Specs {
		s, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range s.Fields.List {
			if len(f.Names) > 0 && f.Names[0].IsExported() {
				add(t.Name+"."+f.Names[0].Name, f.Doc.Text()+"\n\n"+f.Comment.Text())
			}
		}
	}
}

// ends matches the end of a sentence. An abbreviation is none.
var ends = regexp.MustCompile(`[.:!?]\)? `)

// sentencesOf splits a comment into its sentences. Headings and code are none.
func sentencesOf(text string) (all []string) {
	for _, paragraph := range strings.Split(text, "\n\n") {
		if paragraph == "" || strings.HasPrefix(paragraph, "#") || strings.HasPrefix(paragraph, "\t") {
			continue
		}
		rest := strings.Join(strings.Fields(paragraph), " ")
		for rest != "" {
			end := len(rest)
			for _, m := range ends.FindAllStringIndex(rest, -1) {
				next := rest[m[1]:]
				if rest[m[0]] != ':' && (next[0] < 'a' || next[0] > 'z') {
					end = m[1]
					break
				}
			}
			all = append(all, strings.TrimSpace(rest[:end]))
			rest = rest[end:]
		}
	}
	return all
}

// parseSentences reads the file of sentences.
func parseSentences(text string) (all []sentence, err error) {
	of := ""
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "\t\t"):
			if len(all) == 0 || all[len(all)-1].proofs != nil {
				return nil, fmt.Errorf("%s:%d: proofs without a sentence", sentenceFile, i+1)
			}
			all[len(all)-1].proofs = strings.Fields(line)
		case strings.HasPrefix(line, "\t"):
			all = append(all, sentence{of: of, text: line[1:]})
		default:
			of = line
		}
	}
	return all, nil
}

// formatSentences returns the text of the file of sentences: the sentences of the comments,
// with the proofs that they have in known. A new sentence is unproven, with which the test fails.
func formatSentences(sentences, known []sentence) string {
	var out strings.Builder
	of := ""
	for _, s := range sentences {
		if s.of != of {
			of = s.of
			fmt.Fprintln(&out, of)
		}
		proofs := []string{"unproven"}
		if i := slices.IndexFunc(known, func(k sentence) bool { return k.of == s.of && k.text == s.text }); i >= 0 && known[i].proofs != nil {
			proofs = known[i].proofs
		}
		fmt.Fprintf(&out, "\t%s\n\t\t%s\n", s.text, strings.Join(proofs, " "))
	}
	return out.String()
}
