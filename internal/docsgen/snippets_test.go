package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// snippet is a block of Go in a page. A comment before the block, which readers
// do not see, declares the names that the page takes for granted:
//
//	<!-- go: func post(ctx context.Context, token uint64) error; var db *sql.DB -->
//
// With "go in NAME:" the block is compiled in that module, with the packages of
// importableIn.
type snippet struct {
	page string
	in   string // the module's folder; "" is the library's
	line int    // of the block's first line
	decl string
	text string
}

// importable are the packages that snippets may use without an import, with the
// names that snippets give them.
var importable = []string{
	"context", "database/sql", "errors", "fmt", "log/slog", "net/http", "os", "runtime/pprof", "sync", "testing", "testing/synctest", "time",
	"go.etcd.io/etcd/client/v3 clientv3",
	"github.com/jackc/pgx/v5/pgxpool",
	"github.com/redis/go-redis/v9 redis",
	"github.com/redis/rueidis",
	repo, repo + "/anylock", repo + "/driver", repo + "/fence", repo + "/fence/httpfence", repo + "/fence/redisfence", repo + "/fence/sqlfence",
	repo + "/etcdlock", repo + "/lockserver", repo + "/memlock", repo + "/mysqllock", repo + "/pglock", repo + "/redislock", repo + "/redislock/goredis", repo + "/redlock", repo + "/sqlitelock", repo + "/slogholdfast", repo + "/zklock",
	repo + "/stock",
}

// importableIn are the same for the snippets of other modules.
var importableIn = map[string][]string{
	"natslock":     {"context", "github.com/nats-io/nats.go nats", repo, repo + "/natslock"},
	"otelholdfast": {"context", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/sdk/metric", repo, repo + "/otelholdfast"},
	"promholdfast": {"context", "github.com/prometheus/client_golang/prometheus", repo, repo + "/promholdfast"},
	"recipes": {
		"context", "github.com/golang-migrate/migrate/v4 migrate", "github.com/golang-migrate/migrate/v4/source migratesource",
		repo, repo + "/recipes/golangmigrate",
	},
}

const repo = "github.com/holdfast-go/holdfast"

// TestSnippetsCompile checks that every block of Go in README.md and docs
// compiles, apart from unused names.
func TestSnippetsCompile(t *testing.T) {
	imports := map[string]compiled{}
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range snippets(strings.TrimPrefix(page, "../../"), string(text)) {
			if _, ok := imports[s.in]; !ok {
				imports[s.in] = exports(t, s.in)
			}
			if err := imports[s.in].check(s); err != nil {
				t.Errorf("the Go on line %d of %s: %v", s.line, s.page, err)
			}
		}
	}
	if len(imports) != 1+len(importableIn) {
		t.Errorf("the pages have Go of %d modules, want %d", len(imports), 1+len(importableIn))
	}
}

// TestWrongSnippetsFail checks that the test above can fail.
func TestWrongSnippetsFail(t *testing.T) {
	imports := exports(t, "")
	for text, want := range map[string]string{
		"err = locks.Do(ctx, \"a\", nil)":                    "",
		"func f() error { return nil }":                      "",
		"locks.Grab(ctx)":                                    "Grab",
		"hold, err := locks.Mutex(\"a\").Lock()":             "not enough arguments",
		"return holdfast.Tokens(ctx, \"a\")":                 "Tokens",
		"if err != nil {":                                    "expected",
		"package main\n\nfunc main() { nobody() }":           "nobody",
		"a, err := locks.Mutex(\"a\").TryLock(ctx)\nother()": "other",
	} {
		got := snippets("page", "<!-- go: var err error -->\n\n```go\n"+text+"\n```\n")
		if len(got) != 1 {
			t.Fatalf("%q: %d snippets", text, len(got))
		}
		err := imports.check(got[0])
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

var (
	goBlock = regexp.MustCompile("(?ms)(?:^<!-- go(?: in ([a-z]+))?: ([^\n]*) -->\n+)?^```go\n(.*?)^```$")
	// shownFile precedes a file that is compiled where it is, and whose module may
	// not be this one.
	shownFile = regexp.MustCompile(`<!-- generated:code [^ ]+ -->\n$`)
)

func snippets(page, text string) (all []snippet) {
	for _, m := range goBlock.FindAllStringSubmatchIndex(text, -1) {
		if shownFile.MatchString(text[:m[0]]) {
			continue
		}
		s := snippet{page: page, line: 1 + strings.Count(text[:m[6]], "\n"), text: text[m[6]:m[7]]}
		if m[2] >= 0 {
			s.in = text[m[2]:m[3]]
		}
		if m[4] >= 0 {
			s.decl = text[m[4]:m[5]]
		}
		all = append(all, s)
	}
	return all
}

// compiled has the export data of packages, by import path.
type compiled struct {
	fset     *token.FileSet
	importer types.Importer
	specs    map[string]string // of imports, by the name that snippets use
}

// exports builds the packages that snippets of a module may import.
func exports(t *testing.T, in string) compiled {
	t.Helper()
	from := importable
	if in != "" {
		from = importableIn[in]
	}
	c := compiled{fset: token.NewFileSet(), specs: map[string]string{}}
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, spec := range from {
		importPath, name, ok := strings.Cut(spec, " ")
		if !ok {
			name = path.Base(importPath)
		}
		c.specs[name] = fmt.Sprintf("%s %q", name, importPath)
		args = append(args, importPath)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = path.Join("../..", in)
	if in == "recipes" { // is not in the workspace
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	files := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(files[path])
	})
	return c
}

// check compiles a snippet: a whole file, declarations, or statements. It
// accepts names that are not used, or are declared again because a page shows
// two ways.
func (c compiled) check(s snippet) error {
	file, err := c.parse(s)
	if err != nil {
		return err
	}
	var bad []error
	config := types.Config{Importer: c.importer, Error: func(err error) {
		if e := (types.Error{}); !errors.As(err, &e) || !e.Soft {
			bad = append(bad, err)
		}
	}}
	_, _ = config.Check("page", c.fset, []*ast.File{file}, nil)
	return errors.Join(bad...)
}

func (c compiled) parse(s snippet) (*ast.File, error) {
	if strings.HasPrefix(s.text, "package ") {
		return parser.ParseFile(c.fset, s.page, s.text, 0)
	}
	var head strings.Builder
	head.WriteString("package page\n")
	for _, name := range slices.Sorted(maps.Keys(c.specs)) {
		fmt.Fprintf(&head, "import %s\n", c.specs[name])
	}
	// The snippets of every page may use these names.
	head.WriteString("var ctx context.Context\nvar locks *holdfast.Client\n")
	for decl := range strings.SplitSeq(s.decl, "; ") {
		if strings.HasPrefix(decl, "func ") {
			decl += " { panic(0) }"
		}
		head.WriteString(decl + "\n")
	}
	at := fmt.Sprintf("//line /%s:%d\n", s.page, s.line)
	if file, err := parser.ParseFile(c.fset, s.page, head.String()+at+s.text, 0); err == nil {
		return file, nil
	}
	return parser.ParseFile(c.fset, s.page, head.String()+"func _() error {\n"+at+s.text+"\npanic(0)\n}\n", 0)
}
