//go:build unix

package examples_test

import (
	"fmt"
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

// emptyModule returns the folder of a module without packages that requires this one.
func emptyModule(t *testing.T) string {
	t.Helper()
	tree, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(tree, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	module := t.TempDir()
	for name, text := range map[string][]byte{
		"go.mod": fmt.Appendf(nil, "module example.org/copy\n\ngo 1.26.0\n\nrequire github.com/holdfast-go/holdfast v0.0.0\n\nreplace github.com/holdfast-go/holdfast => %s\n", tree),
		"go.sum": sums,
	} {
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
