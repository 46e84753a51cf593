package main

import (
	"flag"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var writeSentences = flag.Bool("sentences", false, "write the sentences anew, with the proofs that they have")

// TestSentencesHaveProofs checks that sentences.txt has the sentences of the root
// package's comments, and that the tests which it names exist. A sentence that is new or
// has changed fails until a test is named for it: run
// go test ./internal/docsgen -run Sentences -sentences, which writes "unproven" there.
func TestSentencesHaveProofs(t *testing.T) {
	root := os.DirFS("../..")
	want, err := sentencesOfRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../" + sentenceFile)
	if err != nil {
		t.Fatal(err)
	}
	known, err := parseSentences(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if *writeSentences {
		text = []byte(formatSentences(want, known))
		if err := os.WriteFile("../../"+sentenceFile, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if known, err = parseSentences(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	if string(text) != formatSentences(want, known) {
		for _, s := range want {
			if !slices.ContainsFunc(known, func(k sentence) bool { return k.of == s.of && k.text == s.text }) {
				t.Errorf("%s: no proof of %q", s.of, s.text)
			}
		}
		t.Errorf("%s has other sentences than the comments, or in another order", sentenceFile)
	}
	tests := map[string]map[string]bool{}
	for _, s := range known {
		for _, proof := range s.proofs {
			folder, name, found := strings.Cut(proof, ".")
			if !found {
				folder, name = ".", proof
			}
			switch {
			case proof == "description" && len(s.proofs) == 1:
			case tests[folder] == nil:
				tests[folder] = testsOf(t, root, folder)
				fallthrough
			default:
				if !tests[folder][name] {
					t.Errorf("%s: %q names %s, which is no test", s.of, s.text, proof)
				}
			}
		}
	}
}

// testsOf returns the names of the tests of a folder.
func testsOf(t *testing.T, root fs.FS, folder string) map[string]bool {
	t.Helper()
	files, err := fs.Glob(root, path.Join(folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", folder, err)
	}
	tests := map[string]bool{}
	for _, name := range files {
		f, err := source(root, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = true
			}
		}
	}
	return tests
}

// TestSentencesOfAComment checks where sentences end, and what is none.
func TestSentencesOfAComment(t *testing.T) {
	got := sentencesOf("New is a function. It returns nil, or an error:\nthe first. Is it (as of v1.2)\nright? Yes.\n\n# Heading\n\n\tcode. Code.\n\nThe end (see above.) More")
	want := []string{"New is a function.", "It returns nil, or an error: the first.", "Is it (as of v1.2) right?", "Yes.", "The end (see above.)", "More"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	known := []sentence{{of: "A", text: "One.", proofs: []string{"TestX", "fence.TestY"}}}
	text := formatSentences([]sentence{{of: "A", text: "One."}, {of: "A", text: "Two."}, {of: "B", text: "One."}}, known)
	if want := "A\n\tOne.\n\t\tTestX fence.TestY\n\tTwo.\n\t\tunproven\nB\n\tOne.\n\t\tunproven\n"; text != want {
		t.Errorf("%q", text)
	}
	again, err := parseSentences(text)
	if err != nil || len(again) != 3 || !slices.Equal(again[0].proofs, known[0].proofs) || again[2].of != "B" {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := parseSentences("A\n\t\tTestX\n"); err == nil {
		t.Error("proofs without a sentence")
	}
}
