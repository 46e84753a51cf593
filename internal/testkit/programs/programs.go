// Package programs makes programs that take the core and one store, each in a module of
// its own, and looks at what these modules then require.
package programs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Library is the path of the root module, which that of each other module of ours begins
// with.
const Library = "github.com/holdfast-go/holdfast"

// clients are the client libraries of stores.
var clients = strings.Fields("github.com/redis/rueidis github.com/redis/go-redis go.etcd.io/etcd google.golang.org/grpc " +
	"github.com/go-zookeeper/zk github.com/go-sql-driver/mysql github.com/jackc/pgx modernc.org/sqlite github.com/nats-io/nats.go")

// A program takes the core and one package.
type program struct {
	takes    string   // below the library's path
	requires string   // the clients in its go.mod
	lists    string   // other clients among its modules, which are not built
	own      []string // other modules of ours
}

var all = []program{
	{takes: "memlock"},
	{takes: "slogholdfast"},
	{takes: "lockserver"},
	{takes: "fence/sqlfence"},
	{takes: "redislock", requires: "github.com/redis/rueidis"},
	{takes: "redislock/goredis", requires: "github.com/redis/rueidis github.com/redis/go-redis", own: []string{"redislock"}},
	{takes: "redlock", lists: "github.com/redis/rueidis"}, // its tests have nodes on Redis
	{takes: "etcdlock", requires: "go.etcd.io/etcd google.golang.org/grpc"},
	{takes: "zklock", requires: "github.com/go-zookeeper/zk"},
	{takes: "pglock", requires: "github.com/jackc/pgx"},
	{takes: "mysqllock", requires: "github.com/go-sql-driver/mysql"},
	{takes: "sqlitelock", requires: "modernc.org/sqlite"},
	{takes: "natslock", requires: "github.com/nats-io/nats.go"},
	{takes: "stock", requires: "github.com/redis/rueidis", lists: "github.com/go-sql-driver/mysql github.com/jackc/pgx"}, // for its tests
	{takes: "otelholdfast"},
	{takes: "promholdfast"},
	{takes: "gocronholdfast"},
}

// Modules says where a program gets our modules from.
type Modules struct {
	Paths []string // all that there are
	Mod   string   // lines of the go.mod that each program begins with
	Sums  []byte   // the go.sum that each program begins with
	Env   []string // environment of the go command, besides that of this process
}

// Check makes each program, and checks that a program that takes the core and one store
// requires the client of that store and of no other, and that other clients are not even
// among the modules whose versions are selected. A program without a store requires the
// core alone. With build, each is built as well.
func (m Modules) Check(t *testing.T, build bool) {
	for _, p := range all {
		t.Run(p.takes, func(t *testing.T) {
			folder := m.write(t, p)
			requires := slices.DeleteFunc(m.required(t, folder), func(path string) bool { return m.expects(p, path) })
			if len(requires) > 0 {
				t.Errorf("it requires %q", requires)
			}
			for path := range strings.FieldsSeq(m.run(t, folder, "list", "-m", "-f", "{{.Path}}", "all")) {
				if c := clientOf(path); c != "" && !slices.Contains(strings.Fields(p.requires+" "+p.lists), c) {
					t.Errorf("%s is among its modules", path)
				}
			}
			if build {
				m.run(t, folder, "build", "-o", os.DevNull, ".")
			}
		})
	}
}

// expects reports whether the program may require a module: its own core and package, the
// clients that it names, or what is no client of a store and comes with one.
func (m Modules) expects(p program, path string) bool {
	own := slices.Contains(m.Paths, Library+"/"+p.takes)
	if path == Library || path == Library+"/"+p.takes && own {
		return true
	}
	if rest, ours := strings.CutPrefix(path, Library+"/"); ours {
		return slices.Contains(p.own, rest)
	}
	if c := clientOf(path); c != "" {
		return slices.Contains(strings.Fields(p.requires), c)
	}
	return own // a package of the core takes nothing
}

// clientOf returns the client that a module is part of, or "".
func clientOf(path string) string {
	i := slices.IndexFunc(clients, func(c string) bool { return strings.HasPrefix(path+"/", c+"/") })
	if i < 0 {
		return ""
	}
	return clients[i]
}

// write writes the program and has the go command complete its module.
func (m Modules) write(t *testing.T, p program) (folder string) {
	t.Helper()
	folder = t.TempDir()
	mod := "module example.org/program\n\ngo 1.26.0\n\n" + m.Mod
	text := fmt.Sprintf("package main\n\nimport (\n\t_ %q\n\t_ %q\n)\n\nfunc main() {}\n", Library, Library+"/"+p.takes)
	for name, data := range map[string][]byte{"go.mod": []byte(mod), "go.sum": m.Sums, "main.go": []byte(text)} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.run(t, folder, "mod", "tidy")
	return folder
}

// required returns the modules in a go.mod.
func (m Modules) required(t *testing.T, folder string) (paths []string) {
	t.Helper()
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal([]byte(m.run(t, folder, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		paths = append(paths, r.Path)
	}
	return paths
}

// run runs the go command in a module.
func (m Modules) run(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), m.Env...)
	var report strings.Builder
	cmd.Stderr = &report
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, report.String())
	}
	return string(out)
}
