package layering

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxLines is the maximum length of a Go file that is no test. A file is one
// type or one phase; one that is longer has more than one idea.
const MaxLines = 600

// grabBags are names that say nothing about the content, so that anything may
// be put there.
var grabBags = []string{"util", "utils", "common", "helper", "helpers", "misc"}

// readsEnvironment are the functions by which the environment controls a
// process without a trace in its code.
var readsEnvironment = map[string][]string{
	"os":      {"Getenv", "LookupEnv", "Environ", "ExpandEnv"},
	"syscall": {"Getenv", "Environ"},
}

// mayReadEnvironment are the packages that serve a person or a test run.
var mayReadEnvironment = []string{"internal/cli", "internal/cli/*", "cmd/*", "internal/testkit/servers", "examples/*"}

var sourceRules = []Rule{
	{"names", "a package is one idea, and its name says which", checkNames},
	{"no init", "what runs before main cannot be seen, ordered or refused by the user; tables are explicit", checkInit},
	{"no environment", "a library is steered by what is passed to it; only the command and tests read the environment", checkEnvironment},
	{"methods", fmt.Sprintf("a type with more than %d methods has more than one idea", MaxMethods), checkMethods},
	{"length", fmt.Sprintf("a file over %d lines has more than one idea", MaxLines), checkLength},
	{"length of clients", fmt.Sprintf("a client that a team reads before it trusts it has at most %d lines", MaxClientLines), checkClients},
}

var textRules = []Rule{
	{"no machine's paths", "a path of somebody's home folder works on one machine only", checkPaths},
	{"modules", "a program that takes one store must not be made to take, or to raise, the client of another", checkModules},
	{"go.mod", "who reads what the module requires must see what it uses itself", checkGoMod},
	{"links", "a page that points nowhere tells its reader that nobody looks after it", checkLinks},
	{"page text", "text that clients chose becomes text on the page of a lock server, and never markup or a program", checkPageText},
	{"no leftovers", "unfinished work is an issue with a number, not a mark in a file", checkLeftovers},
}

func checkNames(t *Tree) (bad []string) {
	for _, p := range t.Packages {
		for _, name := range append(strings.Split(p.Path, "/"), p.Name) {
			if slices.Contains(grabBags, name) {
				bad = append(bad, fmt.Sprintf("package %s (%s)", p.Path, p.Name))
				break
			}
		}
	}
	return bad
}

// mayInit has the packages that run a function before main, with the reason.
var mayInit = map[string]string{
	"internal/cli/guard": "the guard of a command starts before the packages of the client libraries",
}

func checkInit(t *Tree) (bad []string) {
	for p, f := range t.production() {
		if mayInit[p.Path] != "" {
			continue
		}
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				bad = append(bad, fmt.Sprintf("package %s: %s", p.Path, t.at(fn)))
			}
		}
	}
	return bad
}

func checkEnvironment(t *Tree) (bad []string) {
	for p, f := range t.production() {
		if covers(mayReadEnvironment, p.Path) {
			continue
		}
		for _, spec := range f.AST.Imports {
			from, _ := strconv.Unquote(spec.Path.Value)
			banned := readsEnvironment[from]
			if banned == nil {
				continue
			}
			local := path.Base(from)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if local == "." {
				bad = append(bad, fmt.Sprintf("%s: dot import of %s hides what it calls", t.at(spec), from))
				continue
			}
			ast.Inspect(f.AST, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(banned, sel.Sel.Name) {
					bad = append(bad, fmt.Sprintf("%s: %s.%s", t.at(sel), from, sel.Sel.Name))
				}
				return true
			})
		}
	}
	return bad
}

func checkLength(t *Tree) (bad []string) {
	for _, p := range t.Packages {
		for _, f := range p.Code() {
			if f.Lines > MaxLines {
				bad = append(bad, fmt.Sprintf("%s has %d lines", f.Path, f.Lines))
			}
		}
	}
	return bad
}

// machinePath matches folders that belong to a person or a workplace. The
// character before keeps URLs and longer paths out.
var machinePath = regexp.MustCompile(`(?m)(?:^|[\s"'=:(` + "`" + `])(?:/home/[a-z]|/roo[t]/|/User[s]/|/wor[k]/|C:\\Users\\)`)

func checkPaths(t *Tree) (bad []string) {
	for _, text := range t.Texts {
		if loc := machinePath.FindIndex(text.Data); loc != nil {
			line := 1 + strings.Count(string(text.Data[:loc[1]]), "\n")
			bad = append(bad, fmt.Sprintf("%s:%d", text.Path, line))
		}
	}
	return bad
}

// leftover matches the usual marks of unfinished work. They are written with
// brackets so that this file has none.
var leftover = regexp.MustCompile(`\b(?:TOD[O]|FIXM[E]|XX[X])\b`)

// markup matches what makes markup or a program of a text, in a browser.
var markup = regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|setHTML|document\.write|DOMParser|createContextualFragment|srcdoc|javascript:` +
	`|\beval\(|\bFunction\(|createElement\("script"|import\(|set(Timeout|Interval)\("|\.style\b|setAttribute\("(on|style)`)

func checkPageText(t *Tree) (bad []string) {
	for _, text := range t.Texts {
		if path.Ext(text.Path) != ".js" || !strings.HasPrefix(text.Path, "lockserver/") {
			continue
		}
		for i, line := range strings.Split(string(text.Data), "\n") {
			if found := markup.FindString(line); found != "" {
				bad = append(bad, fmt.Sprintf("%s:%d: %s", text.Path, i+1, found))
			}
		}
	}
	return bad
}

func checkLeftovers(t *Tree) (bad []string) {
	for _, text := range t.Texts {
		if path.Ext(text.Path) != ".go" {
			continue
		}
		if loc := leftover.FindIndex(text.Data); loc != nil {
			line := 1 + strings.Count(string(text.Data[:loc[0]]), "\n")
			bad = append(bad, fmt.Sprintf("%s:%d", text.Path, line))
		}
	}
	return bad
}

// link matches the target of a Markdown link, without the part of the page.
var link = regexp.MustCompile(`\]\(([^)\s#]+)[^)]*\)`)

// checkLinks finds relative links of Markdown files to files and folders that
// do not exist. It does not check other links.
func checkLinks(t *Tree) (bad []string) {
	have := map[string]bool{}
	for _, name := range t.Names {
		for ; !have[name]; name = path.Dir(name) {
			have[name] = true
		}
	}
	for _, text := range t.Texts {
		if path.Ext(text.Path) != ".md" {
			continue
		}
		n := 0
		for line := range strings.Lines(string(text.Data)) {
			n++
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				to := path.Join(path.Dir(text.Path), m[1])
				if !strings.Contains(m[1], ":") && !have[to] {
					bad = append(bad, fmt.Sprintf("%s:%d: %s", text.Path, n, m[1]))
				}
			}
		}
	}
	return bad
}
