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
	"slices"
	"strings"
)

// untagged are the folders of modules of the workspace whose packages no program of
// others can require.
var untagged = []string{"clients/lockd", "examples", "tests"}

const library = "github.com/holdfast-go/holdfast/"

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
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Name,Export,DepOnly", "work")
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &problems)
	}
	var out bytes.Buffer
	err = dumpListed(&out, list)
	return out.Bytes(), err
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Name, Export string
	DepOnly                  bool
}

// dumpListed writes the public packages that go list has compiled.
func dumpListed(w io.Writer, list []byte) error {
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
	return p.Name != "main" && !slices.Contains(path, "internal") &&
		!slices.ContainsFunc(untagged, func(m string) bool { return strings.HasPrefix(p.ImportPath+"/", library+m+"/") })
}
