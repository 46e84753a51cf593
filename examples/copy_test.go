//go:build unix

package examples_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCopiedExamplesCompile copies the folder of each example into an empty module that
// requires this one, and compiles it there, without a network.
func TestCopiedExamplesCompile(t *testing.T) {
	module := emptyModule(t)
	for _, e := range examples {
		folder := filepath.Join(module, e.name)
		if err := os.CopyFS(folder, os.DirFS(e.name)); err != nil {
			t.Fatal(err)
		}
	}
	compiled, errs := compile(t, module)
	if errs != "" {
		t.Error(errs)
	}
	if n := len(strings.Fields(compiled)); n != len(examples) {
		t.Errorf("%d of %d examples were compiled:\n%s", n, len(examples), compiled)
	}
}

// TestDocumentedExamplesCompile makes a program of each example of the public packages,
// as godoc does, and compiles them in an empty module. An example that uses
// a declaration of another file of its tests is no program.
func TestDocumentedExamplesCompile(t *testing.T) {
	module := emptyModule(t)
	programs := 0
	for folder, files := range testFiles(t) {
		for _, e := range doc.Examples(files.of...) {
			if e.Play == nil {
				t.Errorf("%s: Example%s is no program by itself: it uses what another file declares, or its package does not end in _test", folder, e.Name)
				continue
			}
			programs++
			var program bytes.Buffer
			if err := format.Node(&program, files.set, e.Play); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(module, fmt.Sprint("example", programs))
			if err := os.Mkdir(to, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(to, "main.go"), program.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	compiled, errs := compile(t, module)
	if errs != "" {
		t.Error(errs)
	}
	if n := len(strings.Fields(compiled)); n != programs || n < 80 {
		t.Errorf("%d of %d examples were compiled, want all, and at least 80", n, programs)
	}
}

// parsed are the files of a folder's tests.
type parsed struct {
	set *token.FileSet
	of  []*ast.File
}

// testFiles returns the tests of the public packages, by their folder.
func testFiles(t *testing.T) map[string]parsed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "work")
	list, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]parsed{}
	for folder := range strings.FieldsSeq(string(list)) {
		if strings.Contains(folder, "/internal/") || strings.Contains(folder, "/tests/") {
			continue
		}
		names, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		p := parsed{set: token.NewFileSet()}
		for _, name := range names {
			file, err := parser.ParseFile(p.set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			p.of = append(p.of, file)
		}
		all[folder] = p
	}
	return all
}

// TestInternalImportsDoNotCompile checks that the test above can fail.
func TestInternalImportsDoNotCompile(t *testing.T) {
	module := emptyModule(t)
	program := "package main\n\nimport _ \"github.com/holdfast-go/holdfast/internal/cli/userstore\"\n\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(module, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs := compile(t, module); !strings.Contains(errs, "use of internal package") {
		t.Errorf("it compiles, or fails for another reason: %s", errs)
	}
}

// emptyModule returns the folder of a module without packages that requires all modules of
// the workspace.
func emptyModule(t *testing.T) string {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	mod, sums := []byte("module example.org/copy\n\ngo 1.26.0\n"), []byte(nil)
	for line := range strings.Lines(string(list)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		mod = fmt.Appendf(mod, "\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[2]s\n", name, dir)
		sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum...)
	}
	module := t.TempDir()
	for name, text := range map[string][]byte{"go.mod": mod, "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(module, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return module
}

// compile compiles the packages of a module, and returns their names and the errors. With
// -export, go list compiles, and links nothing.
func compile(t *testing.T, module string) (names, errs string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-f", "{{.ImportPath}}", "./...")
	cmd.Dir, cmd.Env = module, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return out.String(), err.Error() + "\n" + stderr.String()
	}
	return out.String(), ""
}
