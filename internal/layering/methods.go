package layering

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// MaxMethods is the maximum number of methods of a type that is not a test's. A type is
// one idea with its own state; one with more methods has several.
const MaxMethods = 30

func checkMethods(t *Tree) (bad []string) {
	counts := map[string]int{}
	for _, p := range t.Packages {
		for _, f := range p.Code() {
			for _, d := range f.AST.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
					counts[p.Path+"."+receiver(fn.Recv.List[0].Type)]++
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > MaxMethods {
			bad = append(bad, fmt.Sprintf("%s has %d methods, of %d", name, counts[name], MaxMethods))
		}
	}
	return bad
}
