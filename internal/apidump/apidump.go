// Command apidump writes api.txt, a row for each name that the public packages
// export, so that a change of the API is seen in review.
//
// Usage:
//
//	go generate ./internal/apidump
//
// Public packages are all that are not commands and not below internal, of every
// module that is tagged. The test of this package compares.
package main

//go:generate go run . -root ../.. -out api.txt

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// modules are the folders of the modules that are tagged.
var modules = []string{".", "gocronholdfast", "natslock", "otelholdfast", "promholdfast"}

func main() {
	root := flag.String("root", ".", "the first module's root")
	out := flag.String("out", "internal/apidump/api.txt", "the file to write")
	flag.Parse()
	text, err := dump(*root)
	if err == nil {
		err = os.WriteFile(*out, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidump:", err)
		os.Exit(1)
	}
}

// dump returns the text of api.txt.
func dump(root string) ([]byte, error) {
	var out bytes.Buffer
	for _, m := range modules {
		if err := dumpModule(&out, filepath.Join(root, m)); err != nil {
			return nil, fmt.Errorf("module %s: %w", m, err)
		}
	}
	return out.Bytes(), nil
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Name, Export string
	DepOnly                  bool
}

// dumpModule writes the public packages of the module in a folder. It compiles
// them if the build cache does not have them.
func dumpModule(w io.Writer, folder string) error {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Name,Export,DepOnly", "./...")
	cmd.Dir = folder
	var problems bytes.Buffer
	cmd.Stderr = &problems
	list, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w: %s", err, &problems)
	}
	exports := map[string]string{}
	var public []string
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && isPublic(p) {
			public = append(public, p.ImportPath)
		}
	}
	slices.Sort(public)
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, path := range public {
		pkg, err := imports.Import(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "package %s\n%s\n", path, strings.Join(exported(pkg), ""))
	}
	return nil
}

// isPublic reports whether programs of others can import a package.
func isPublic(p listed) bool {
	path := strings.Split(p.ImportPath, "/")
	return p.Name != "main" && !slices.Contains(path, "internal") && !slices.Contains(path, "examples")
}
