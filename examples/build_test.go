//go:build unix

package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asExample in the environment says which example the one program is.
const asExample = "HOLDFAST_EXAMPLE"

// programs is one program that is every example. To link each of them for
// itself would take several times as long as to run them all.
type programs struct{ path string }

// build makes the program. An overlay shows each package main to the compiler as
// a package of another name, with a Main for its main.
func build(t *testing.T) programs {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]string{}
	add := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(root, filepath.FromSlash(path))] = file
	}
	var imports, cases strings.Builder
	for _, e := range examples {
		text, err := os.ReadFile(filepath.Join(e.name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		swapped := string(text)
		for _, swap := range [][2]string{{"\npackage main\n", "\npackage " + e.name + "\n"}, {"\nfunc main() {", "\nfunc Main() {"}} {
			if strings.Count(swapped, swap[0]) != 1 {
				t.Fatalf("%s/main.go should have %q once", e.name, swap[0])
			}
			swapped = strings.Replace(swapped, swap[0], swap[1], 1)
		}
		add("examples/all/"+e.name+"/main.go", swapped)
		fmt.Fprintf(&imports, "%q\n", "github.com/holdfast-go/holdfast/examples/all/"+e.name)
		fmt.Fprintf(&cases, "case %q: %s.Main()\n", e.name, e.name)
	}
	add("examples/all/main.go", fmt.Sprintf("package main\nimport (\n\"os\"\n%s)\nfunc main() {\nswitch os.Getenv(%q) {\n%sdefault: os.Exit(2)\n}\n}\n", imports.String(), asExample, cases.String()))

	description, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), description, 0o600); err != nil {
		t.Fatal(err)
	}
	p := programs{filepath.Join(dir, "examples")}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", p.path)
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		cmd.Args = append(cmd.Args, "-race")
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1") // which the race detector needs
	}
	cmd.Args = append(cmd.Args, "./examples/all")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(cmd.Args[1:], " "), err, out)
	}
	return p
}

// run runs an example to its end, in a folder that it makes. Its error has what the
// example wrote to standard error.
func (p programs) run(ctx context.Context, name, store, folder string) ([]byte, error) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path)
	if store != "" {
		cmd.Args = append(cmd.Args, "-store", store)
	}
	cmd.Env = append(os.Environ(), asExample+"="+name)
	cmd.Dir = folder
	// Its child processes end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil || errs.Len() > 0 {
		return out.Bytes(), fmt.Errorf("it ended with %v, and wrote %q", err, errs.String())
	}
	return out.Bytes(), nil
}
