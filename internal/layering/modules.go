package layering

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Module is a module of the workspace: what its go.mod requires, and the packages
// below its folder.
type Module struct {
	Dir      string // relative to the root; "." is the first module
	Path     string
	Requires []Requirement
}

// Requirement is a line of a go.mod.
type Requirement struct {
	Path     string
	Indirect bool
}

// requirement matches a line of go.mod's require blocks.
var requirement = regexp.MustCompile(`^(?:require )?\s*([^\s/]+\.[^\s]+) v[^\s]+( // indirect)?$`)

// readModules returns the modules that go.work lists, or the one at the top where there
// is no go.work. Modules that it does not list are those of tools and peers, whose
// requirements concern nobody.
func readModules(fsys fs.FS) (all []Module, err error) {
	dirs := []string{"."}
	if work, err := fs.ReadFile(fsys, "go.work"); err == nil {
		for line := range strings.Lines(string(work)) {
			if dir, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "use "), "./"); ok {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, dir := range dirs {
		mod, err := fs.ReadFile(fsys, path.Join(dir, "go.mod"))
		if err != nil {
			return nil, fmt.Errorf("reading the module: %w", err)
		}
		m := Module{Dir: dir}
		for line := range strings.Lines(string(mod)) {
			line = strings.TrimRight(line, "\r\n")
			if name, ok := strings.CutPrefix(line, "module "); ok {
				m.Path = strings.TrimSpace(name)
			} else if r := requirement.FindStringSubmatch(line); r != nil {
				m.Requires = append(m.Requires, Requirement{Path: r[1], Indirect: r[2] != ""})
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// moduleOf returns the module of a package or a folder: the one with the longest folder
// above it.
func (t *Tree) moduleOf(p string) Module {
	found := t.Modules[0]
	for _, m := range t.Modules[1:] {
		if (p == m.Dir || strings.HasPrefix(p, m.Dir+"/")) && (found.Dir == "." || len(m.Dir) > len(found.Dir)) {
			found = m
		}
	}
	return found
}

// provider returns the index of the requirement that provides an import, or -1.
func (m Module) provider(name string) int {
	found := -1
	for i, r := range m.Requires {
		if (name == r.Path || strings.HasPrefix(name, r.Path+"/")) && (found < 0 || len(r.Path) > len(m.Requires[found].Path)) {
			found = i
		}
	}
	return found
}

// checkGoMod finds modules that no package of the module that requires them imports and
// that lack the mark "indirect", and imported modules that have it.
func checkGoMod(t *Tree) (bad []string) {
	imported := map[string][]bool{}
	for _, m := range t.Modules {
		imported[m.Dir] = make([]bool, len(m.Requires))
	}
	for _, p := range t.Packages {
		m := t.moduleOf(p.Path)
		for _, f := range p.Files {
			for _, spec := range f.AST.Imports {
				name, _ := strconv.Unquote(spec.Path.Value)
				own := strings.HasPrefix(name+"/", m.Path+"/") && t.moduleOf(t.folder(name)).Dir == m.Dir
				if i := m.provider(name); i >= 0 && !own {
					imported[m.Dir][i] = true
				}
			}
		}
	}
	for _, m := range t.Modules {
		for i, r := range m.Requires {
			if imported[m.Dir][i] == r.Indirect {
				bad = append(bad, fmt.Sprintf("%s: %s: imported is %t, marked indirect is %t", path.Join(m.Dir, "go.mod"), r.Path, imported[m.Dir][i], r.Indirect))
			}
		}
	}
	return bad
}

// folder returns the folder of an import of the tree.
func (t *Tree) folder(name string) string {
	if rest, ok := strings.CutPrefix(name, t.Module+"/"); ok {
		return rest
	}
	return "."
}

// clients are the client libraries of stores.
const clients = "github.com/redis/rueidis github.com/redis/go-redis go.etcd.io/etcd google.golang.org/grpc " +
	"github.com/go-zookeeper/zk github.com/go-sql-driver/mysql github.com/jackc/pgx modernc.org/sqlite github.com/nats-io/nats.go"

// testsOn has the clients that a module requires for its tests alone, and the reason.
var testsOn = map[string]struct{ Clients, Reason string }{
	"stock": {"github.com/go-sql-driver/mysql github.com/jackc/pgx", "its tests bring a driver of database/sql, as its users do"},
	"tests": {"*", "no program requires it"},
}

// checkModules finds modules that would bring a client library into programs that do
// without it.
func checkModules(t *Tree) (bad []string) {
	for _, r := range t.Modules[0].Requires {
		if r.Path != "go.uber.org/goleak" {
			bad = append(bad, "go.mod requires "+r.Path)
		}
	}
	for _, m := range t.Modules {
		may := strings.Fields(t.mayRequire(m.Dir, nil))
		for _, r := range m.Requires {
			client := slices.IndexFunc(strings.Fields(clients), func(c string) bool { return strings.HasPrefix(r.Path+"/", c+"/") })
			if client >= 0 && !slices.Contains(may, strings.Fields(clients)[client]) && !slices.Contains(may, "*") {
				bad = append(bad, fmt.Sprintf("%s requires %s", path.Join(m.Dir, "go.mod"), r.Path))
			}
		}
	}
	return bad
}

// mayRequire returns what the rows of a module's packages may import, with what the
// modules may that it requires.
func (t *Tree) mayRequire(dir string, seen []string) string {
	if slices.Contains(seen, dir) {
		return ""
	}
	seen = append(seen, dir)
	may := testsOn[dir].Clients
	for _, p := range t.Packages {
		if row, ok := rowOf(p.Path); ok && t.moduleOf(p.Path).Dir == dir {
			may += " " + row.Foreign
		}
	}
	for _, r := range t.moduleAt(dir).Requires {
		if i := slices.IndexFunc(t.Modules, func(m Module) bool { return m.Path == r.Path }); i >= 0 {
			may += " " + t.mayRequire(t.Modules[i].Dir, seen)
		}
	}
	return may
}

func (t *Tree) moduleAt(dir string) Module {
	return t.Modules[slices.IndexFunc(t.Modules, func(m Module) bool { return m.Dir == dir })]
}
