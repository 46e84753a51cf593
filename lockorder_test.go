package holdfast_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// notedMutex is a sync.Mutex that appends to a file, with the stack, each pair of
// mutexes of which a goroutine takes the second under the first.
const notedMutex = `package holdfast

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
)

type notedMutex[T interface{ String() string }] struct{ sync.Mutex }

var notes struct {
	sync.Mutex
	held map[uint64][]string
	seen map[string]bool
}

func (m *notedMutex[T]) name() string {
	var of T
	return of.String()
}

// goroutine returns the number of the goroutine, with which its stack begins.
func goroutine() (id uint64) {
	var b [32]byte
	for _, digit := range b[len("goroutine "):runtime.Stack(b[:], false)] {
		if digit == ' ' {
			break
		}
		id = 10*id + uint64(digit-'0')
	}
	return id
}

func (m *notedMutex[T]) note() {
	me, name := goroutine(), m.name()
	notes.Lock()
	defer notes.Unlock()
	if notes.held == nil {
		notes.held, notes.seen = map[uint64][]string{}, map[string]bool{}
	}
	for _, outer := range notes.held[me] {
		pair := outer + " " + name
		if notes.seen[pair] {
			continue
		}
		notes.seen[pair] = true
		stack := make([]byte, 4000)
		f, err := os.OpenFile(NOTES, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(f, "%s\t%q\n", pair, stack[:runtime.Stack(stack, false)])
		f.Close()
	}
	notes.held[me] = append(notes.held[me], name)
}

func (m *notedMutex[T]) Lock() {
	m.note()
	m.Mutex.Lock()
}

func (m *notedMutex[T]) TryLock() bool {
	ok := m.Mutex.TryLock()
	if ok {
		m.note()
	}
	return ok
}

func (m *notedMutex[T]) Unlock() {
	me, name := goroutine(), m.name()
	notes.Lock()
	all := notes.held[me]
	at := len(all) - 1
	for all[at] != name {
		at--
	}
	if notes.held[me] = slices.Delete(all, at, at+1); len(all) == 1 {
		delete(notes.held, me)
	}
	notes.Unlock()
	m.Mutex.Unlock()
}
`

// notedTests has words of the names of the tests that TestLockOrder runs: quick ones,
// which take each pair of mutexes that any test takes. Those of leftOut take long, or,
// as TestQueueTable, look at a renewal before it is sent.
const (
	notedTests = "Queue|Shutdown|Nest|Detach|MaxHold|F22"
	leftOut    = "^TestLockOrder$|^TestQueueTable$|Race"
)

// TestLockOrder runs tests with mutexes that note under which others they are taken.
// It compares that with the table at the head of queue.go, and checks that the table
// has no circle.
func TestLockOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	notes := filepath.Join(dir, "notes")
	program := noteMutexes(t, dir, notes)
	out, err := exec.Command(program, "-test.run", notedTests, "-test.skip", leftOut).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	written := lockTable(t)
	stale := maps.Clone(written)
	for line := range strings.Lines(string(text)) {
		pair, stack, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if delete(stale, pair); !written[pair] {
			t.Errorf("%s: is not in the table of queue.go; taken by\n%s", strings.Replace(pair, " ", ", then ", 1), stack)
		}
	}
	for pair := range stale {
		t.Errorf("%s: no test takes them so", strings.Replace(pair, " ", ", then ", 1))
	}
	if circle := circleOf(written); circle != "" {
		t.Errorf("the table has a circle: %s", circle)
	}
}

// noteMutexes compiles the tests of this package with notedMutex in place of each
// mutex of a type.
func noteMutexes(t *testing.T, dir, notes string) (program string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	var types strings.Builder
	put := func(name, text string) {
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fset := gotoken.NewFileSet()
		f, err := parser.ParseFile(fset, name, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		text, grown := string(source), 0
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return false
			}
			for _, field := range st.Fields.List {
				at, end := fset.Position(field.Type.Pos()).Offset, fset.Position(field.Type.End()).Offset
				if string(source[at:end]) != "sync.Mutex" {
					continue
				}
				noted := "notedMutex[mutexOf" + spec.Name.Name + "]"
				text = text[:at+grown] + noted + text[end+grown:]
				grown += len(noted) - (end - at)
				fmt.Fprintf(&types, "\ntype mutexOf%[1]s struct{}\n\nfunc (mutexOf%[1]s) String() string { return %[1]q }\n", spec.Name.Name)
			}
			return false
		})
		if grown > 0 {
			put(name, text+"\nvar _ sync.Mutex\n")
		}
	}
	if len(replace) < 8 {
		t.Fatalf("only %d files have a mutex", len(replace))
	}
	put("noted_mutex.go", strings.Replace(notedMutex, "NOTES", fmt.Sprintf("%q", notes), 1)+types.String())
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "noted.test")
	if out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// lockTable returns the pairs of the table at the head of queue.go.
func lockTable(t *testing.T) map[string]bool {
	t.Helper()
	source, err := os.ReadFile("queue.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(source), "//	mutex of         and under it those of\n")
	if !ok {
		t.Fatal("queue.go has no table of mutexes")
	}
	pairs := map[string]bool{}
	for line := range strings.Lines(table) {
		row, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			break
		}
		fields := strings.Fields(strings.ReplaceAll(row, ",", ""))
		for _, inner := range fields[1:] {
			pairs[fields[0]+" "+inner] = true
		}
	}
	return pairs
}

// circleOf returns mutexes of which each is taken under the one before, and the
// first under the last; "" if there are none.
func circleOf(pairs map[string]bool) string {
	under := map[string][]string{}
	for pair := range pairs {
		outer, inner, _ := strings.Cut(pair, " ")
		under[outer] = append(under[outer], inner)
	}
	var visit func(path []string, at string) string
	visit = func(path []string, at string) string {
		if i := slices.Index(path, at); i >= 0 {
			return strings.Join(append(path[i:], at), ", ")
		}
		for _, inner := range under[at] {
			if circle := visit(append(slices.Clone(path), at), inner); circle != "" {
				return circle
			}
		}
		return ""
	}
	for outer := range under {
		if circle := visit(nil, outer); circle != "" {
			return circle
		}
	}
	return ""
}
