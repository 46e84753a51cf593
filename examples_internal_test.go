package holdfast

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
)

// shownBy has the functions and methods that the example of another one shows.
var shownBy = map[string]string{
	"Client.Mutex":           "Mutex_Lock",
	"Client.Renew":           "WithManualRenewal",
	"Hold.Deadline":          "WithManualRenewal",
	"Hold.Detach":            "WithOwner",
	"Hold.Name":              "Hold_Err",
	"Hold.Renew":             "WithManualRenewal",
	"Hold.Ticket":            "Hold_Unlock",
	"LockInfo.Kind":          "Client_Inspect",
	"Multi.Do":               "Client_Multi",
	"Multi.TryLock":          "Multi_Lock",
	"MultiHold.Context":      "Multi_Lock",
	"MultiHold.Err":          "Multi_Lock",
	"MultiHold.Token":        "Multi_Lock",
	"MultiHold.Unlock":       "Multi_Lock",
	"RWMutex.Do":             "RWMutex_RDo",
	"RWMutex.Lock":           "RWMutex_RDo",
	"RWMutex.RLock":          "Client_RWMutex",
	"RWMutex.TryLock":        "Client_RWMutex",
	"RWMutex.TryRLock":       "RWMutex_RDo",
	"Semaphore.Acquire":      "Semaphore_Do",
	"Semaphore.TryAcquire":   "Client_Semaphore",
	"StoreError.Unavailable": "StoreError_RetryAfter",
	"StoreError.Unknown":     "StoreError_RetryAfter",
	"Token":                  "Client_Do",
}

// TestEachFunctionHasAnExample checks that each exported function, option and method
// has an example that runs, its own or the one that shownBy names. Not asked for are
// the methods by which errors and fmt use a value: Error, Is, Unwrap and String.
func TestEachFunctionHasAnExample(t *testing.T) {
	files := token.NewFileSet()
	sources := func(tests bool) (parsed []*ast.File) {
		names, err := fs.Glob(os.DirFS("."), "*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") != tests {
				continue
			}
			f, err := parser.ParseFile(files, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		return parsed
	}
	examples := map[string]*doc.Example{}
	for _, e := range doc.Examples(sources(true)...) {
		examples[e.Name] = e
		if e.Output == "" {
			t.Errorf("Example%s prints nothing that is compared, so it does not run", e.Name)
		}
	}
	pkg, err := doc.NewFromFiles(files, sources(false), "github.com/holdfast-go/holdfast")
	if err != nil {
		t.Fatal(err)
	}
	unused := maps.Clone(shownBy)
	check := func(symbol string) {
		own, by := strings.ReplaceAll(symbol, ".", "_"), shownBy[symbol]
		_, name, isMethod := strings.Cut(symbol, ".")
		switch {
		case isMethod && strings.Contains(" Error Is Unwrap String ", " "+name+" "):
		case examples[own] != nil && by != "":
			t.Errorf("%s has an example: remove it from shownBy", symbol)
		case examples[own] != nil:
		case by == "":
			t.Errorf("%s has no Example%s, and shownBy names no other", symbol, own)
		case examples[by] == nil || !calls(examples[by].Code, symbol):
			t.Errorf("Example%s does not call %s", by, symbol)
		}
		delete(unused, symbol)
	}
	for _, f := range pkg.Funcs {
		check(f.Name)
	}
	for _, typ := range pkg.Types {
		for _, f := range typ.Funcs {
			check(f.Name)
		}
		for _, m := range typ.Methods {
			check(typ.Name + "." + m.Name)
		}
	}
	for symbol := range unused {
		t.Errorf("shownBy names %s, which does not exist", symbol)
	}
}

// calls reports whether code calls a method of the name of symbol.
func calls(code ast.Node, symbol string) (found bool) {
	name := symbol[strings.LastIndex(symbol, ".")+1:]
	ast.Inspect(code, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == name {
			found = true
		}
		return !found
	})
	return found
}
