// Package modules_test makes programs that take the core and one store, each in a module
// of its own, and looks at what these modules then require.
package modules_test

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

const library = "github.com/holdfast-go/holdfast"

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

var programs = []program{
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

// TestProgramRequiresItsStoreAlone checks that a program that takes the core and one store
// requires the client of that store and of no other, and that other clients are not even
// among the modules whose versions are selected. A program without a store requires the
// core alone.
func TestProgramRequiresItsStoreAlone(t *testing.T) {
	dirs := workspace(t)
	for _, p := range programs {
		t.Run(p.takes, func(t *testing.T) {
			module := p.make(t, dirs)
			requires := slices.DeleteFunc(required(t, module), func(m string) bool { return p.expects(m, dirs) })
			if len(requires) > 0 {
				t.Errorf("it requires %q", requires)
			}
			for m := range strings.FieldsSeq(run(t, module, "list", "-m", "-f", "{{.Path}}", "all")) {
				if c := clientOf(m); c != "" && !slices.Contains(strings.Fields(p.requires+" "+p.lists), c) {
					t.Errorf("%s is among its modules", m)
				}
			}
		})
	}
}

// expects reports whether the program may require a module: its own core and package, the
// clients that it names, or what is no client of a store and comes with one.
func (p program) expects(m string, dirs map[string]string) bool {
	if m == library || m == library+"/"+p.takes && dirs[m] != "" {
		return true
	}
	if rest, ours := strings.CutPrefix(m, library+"/"); ours {
		return slices.Contains(p.own, rest)
	}
	if c := clientOf(m); c != "" {
		return slices.Contains(strings.Fields(p.requires), c)
	}
	return dirs[library+"/"+p.takes] != "" // a package of the core takes nothing
}

// clientOf returns the client that a module is part of, or "".
func clientOf(m string) string {
	i := slices.IndexFunc(clients, func(c string) bool { return strings.HasPrefix(m+"/", c+"/") })
	if i < 0 {
		return ""
	}
	return clients[i]
}

// workspace returns the folders of the workspace's modules by their paths.
func workspace(t *testing.T) map[string]string {
	t.Helper()
	dirs := map[string]string{}
	list, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		dirs[name] = dir
	}
	return dirs
}

// make writes the program and has the go command complete its module.
func (p program) make(t *testing.T, dirs map[string]string) string {
	t.Helper()
	module := t.TempDir()
	mod, sums := "module example.org/program\n\ngo 1.26.0\n", []byte(nil)
	for name, dir := range dirs {
		mod += fmt.Sprintf("\nreplace %s => %s\n", name, dir)
		sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum...)
	}
	text := fmt.Sprintf("package main\n\nimport (\n\t_ %q\n\t_ %q\n)\n\nfunc main() {}\n", library, library+"/"+p.takes)
	for name, data := range map[string][]byte{"go.mod": []byte(mod), "go.sum": sums, "main.go": []byte(text)} {
		if err := os.WriteFile(filepath.Join(module, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, module, "mod", "tidy")
	return module
}

// required returns the modules in a go.mod.
func required(t *testing.T, module string) (paths []string) {
	t.Helper()
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal([]byte(run(t, module, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		paths = append(paths, r.Path)
	}
	return paths
}

// run runs the go command in a module.
func run(t *testing.T, module string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var report strings.Builder
	cmd.Stderr = &report
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, report.String())
	}
	return string(out)
}
