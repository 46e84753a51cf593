package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// packageColumns has the columns and groups that the tests of each package
// concern. Where a package has several stores, a test concerns the store with
// which its name begins ("TestF31_ClusterMoves"), or the stores that its
// comment names ("Covers: F36 on redis, sentinel.").
var packageColumns = map[string]string{
	".": "core", "driver": "core", "drivertest": "core", "anylock": "core", "internal/tlsurl": "core",
	"internal/cli": "command", "internal/cli/job": "command",
	"fence": "fence", "fence/httpfence": "fence", "tests/redisfence": "fence", "tests/sqlfence": "fence",
	"memlock": "memory", "sqlitelock": "sqlite", "redislock": "redis", "redislock/goredis": "redis", "redislock/internal/rueidisclient": "redis", "redislock/internal/server": "redis",
	"redlock": "redlock", "etcdlock": "etcd", "pglock": "postgres", "mysqllock": "mysql",
	"tests/sqlqueue": "sql", "zklock": "zookeeper",
}

var (
	numbered = regexp.MustCompile(`^Test((?:F\d+_)+)(\w+)$`)
	unmarked = regexp.MustCompile(`^TestF\d+[^_\d]`)
	covers   = regexp.MustCompile(`(?m)^Covers: (F\d+(?:,\s+F\d+)*)(?: on ([a-z]+(?:,\s+[a-z]+)*))?\.$`)
	faultNo  = regexp.MustCompile(`\bF(\d+)\b`)
)

// catalogued finds the tests of every fault on every column: the tests that
// name the fault, and the cases of the suite, as far as they concern a store.
func catalogued(fsys fs.FS, families []family) (map[place][]string, error) {
	tests := map[place][]string{}
	add := func(fault, column, test string) {
		n, _ := strconv.Atoi(strings.TrimPrefix(fault, "F"))
		at := place{n, column}
		if !slices.Contains(tests[at], test) {
			tests[at] = append(tests[at], test)
		}
	}
	for pkg, about := range packageColumns {
		files, err := fs.Glob(fsys, path.Join(pkg, "*_test.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			f, err := source(fsys, name)
			if err != nil {
				return nil, err
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
					if err := testOf(fn, pkg, about, add); err != nil {
						return nil, fmt.Errorf("%s: %w", name, err)
					}
				}
			}
		}
	}
	cases, err := suiteCases(fsys)
	if err != nil {
		return nil, err
	}
	befalls := map[place]bool{}
	for _, fam := range families {
		for _, f := range fam.faults {
			for _, key := range f.befalls() {
				befalls[place{f.number, key}] = true
			}
		}
	}
	for _, s := range suites {
		for _, c := range cases[s.kind] {
			if !s.runs(c) {
				continue
			}
			for _, m := range faultNo.FindAllStringSubmatch(c.about, -1) {
				if n, _ := strconv.Atoi(m[1]); befalls[place{n, s.column}] {
					add(m[1], s.column, s.test+"/"+strings.ReplaceAll(c.name, " ", "_"))
				}
			}
		}
	}
	for at := range tests {
		slices.Sort(tests[at])
	}
	return tests, nil
}

// testOf adds the faults and columns that one test covers.
func testOf(fn *ast.FuncDecl, pkg, about string, add func(fault, column, test string)) error {
	name := fn.Name.Name
	if unmarked.MatchString(name) {
		return fmt.Errorf("%s: say TestF27_Name", name)
	}
	test := pkg + "." + name
	if pkg == "." {
		test = "holdfast." + name
	}
	bare := strings.TrimPrefix(name, "Test")
	var own []string
	if m := numbered.FindStringSubmatch(name); m != nil {
		own, bare = strings.Split(strings.Trim(m[1], "_"), "_"), m[2]
	}
	if strings.HasPrefix(pkg, "redislock") {
		for _, key := range []string{"sentinel", "cluster"} {
			if strings.HasPrefix(strings.ToLower(bare), key) {
				about = key
			}
		}
	}
	told := map[string]bool{}
	for _, m := range covers.FindAllStringSubmatch(fn.Doc.Text(), -1) {
		where := about
		if m[2] != "" {
			where = strings.ReplaceAll(m[2], ",", " ")
		}
		for _, f := range faultNo.FindAllString(m[1], -1) {
			told[f] = true
			for _, key := range (fault{on: where}).befalls() {
				add(f, key, test)
			}
		}
	}
	if strings.Contains(fn.Doc.Text(), "Covers:") && len(told) == 0 {
		return fmt.Errorf("%s: cannot read what it covers; write Covers: F1, F4 on redis, sentinel, with a full stop", name)
	}
	for _, f := range own {
		if told[f] {
			continue
		}
		for _, key := range (fault{on: about}).befalls() {
			add(f, key, test)
		}
	}
	return nil
}

func source(fsys fs.FS, name string) (*ast.File, error) {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	return parser.ParseFile(token.NewFileSet(), name, data, parser.ParseComments)
}

// suiteCase is one case that all stores share: its text, with its faults, and
// the abilities of a store that it needs.
type suiteCase struct {
	name, about string
	needs       []string
}

// suiteCases reads the cases of packages drivertest and multiproc from
// their sources.
func suiteCases(fsys fs.FS) (map[string][]suiteCase, error) {
	cases := map[string][]suiteCase{}
	for kind, pattern := range map[string]string{
		"drivertest": "drivertest/cases_*.go", "locks": "drivertest/locks*.go", "multiproc": "internal/testkit/multiproc/run.go",
	} {
		files, err := fs.Glob(fsys, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := source(fsys, name)
			if err != nil {
				return nil, err
			}
			cases[kind] = append(cases[kind], casesOf(f)...)
		}
	}
	return cases, nil
}

// casesOf finds the literals with a name and a text about it, and the map of
// functions by name, whose comments are the text.
func casesOf(f *ast.File) (cases []suiteCase) {
	docs := map[string]string{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			docs[fn.Name.Name] = fn.Doc.Text()
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		var c suiteCase
		for _, e := range lit.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			if key, isKey := kv.Key.(*ast.Ident); isKey {
				switch strings.ToLower(key.Name) {
				case "name":
					c.name = text(kv.Value)
				case "rules", "about":
					c.about = text(kv.Value)
				case "needs":
					c.needs = append(c.needs, idents(kv.Value)...)
				case "pause": // the word of the cases of the lock for a case that silences the store
					c.needs = append(c.needs, "Pause")
				}
			} else if fn, isFn := kv.Value.(*ast.Ident); isFn && docs[fn.Name] != "" {
				cases = append(cases, suiteCase{name: text(kv.Key), about: docs[fn.Name]})
			}
		}
		if c.name != "" && c.about != "" {
			cases = append(cases, c)
		}
		return true
	})
	return cases
}

func text(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		s, _ := strconv.Unquote(lit.Value)
		return s
	}
	return ""
}

func idents(e ast.Expr) (names []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
		return true
	})
	return names
}
