package layering

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Rule is a condition on the whole tree.
type Rule struct {
	Name   string
	Reason string
	Check  func(t *Tree) []string // returns the breaches, each with its place
}

// Rules returns all rules.
func Rules() []Rule {
	return slices.Concat(importRules, sourceRules, docRules, textRules)
}

// Row has the packages that one package may import besides the standard
// library.
type Row struct {
	Package string // relative to the module's root; a trailing "/*" covers the folders below
	Own     string // packages of the module, separated by spaces; "*" is any
	Foreign string // modules of others, separated by spaces
	Reason  string
}

// linked are the stores of the command, and stores all packages that keep queues in one
// kind of store.
const (
	linked = "memlock redislock redlock etcdlock zklock mysqllock pglock sqlitelock"
	stores = linked + " natslock"
)

// rows is the map of the module. Arrows run one way: cmd, internal/cli,
// anylock, a store, driver; and root, driver. A package that has no row is an
// error, and so is a dependency that its row does not name: both are decisions
// and belong here with their reason.
var rows = []Row{
	{".", "driver internal/backoff internal/heap", "",
		"the core is the same for every store, and who takes it takes no client library with it"},
	{"driver", "", "",
		"the seam must be implementable without taking on anything"},

	{"memlock", "driver", "",
		"the executable specification may rest on nothing but the seam"},
	{"redislock/internal/wire", "driver", "",
		"what travels to a server and back is the same on every client library"},
	{"redislock/internal/client", "driver internal/unanswered redislock/internal/wire", "",
		"what redislock needs of a client library names none of them"},
	{"redislock/internal/rueidisclient", "driver redislock/internal/client redislock/internal/wire", "github.com/redis/rueidis",
		"what bends rueidis to the interface of clients is in one place, below the drivers"},
	{"redislock/internal/server", "driver internal/backoff internal/storelayout redislock/internal/client redislock/internal/wire", "",
		"the driver of one server does not know which client library it has, nor whether Sentinels or a cluster chose the server"},
	{"redislock/internal/cluster", "driver internal/backoff redislock/internal/client redislock/internal/server redislock/internal/wire", "",
		"what finds the node of a slot is told how to reach servers, and knows no URL and no client library"},
	{"redislock/internal/sentinel", "driver internal/backoff internal/storeurl redislock/internal/server redislock/internal/wire", "",
		"what finds a primary is told how to reach servers, and knows no URL and no client library"},
	{"redislock", "driver internal/storeurl internal/tlsurl redislock/internal/client redislock/internal/cluster redislock/internal/rueidisclient redislock/internal/sentinel redislock/internal/server redislock/internal/wire", "github.com/redis/rueidis",
		"a store knows the seam and its own client, never another store nor the core above it"},
	{"redislock/goredis", "driver redislock redislock/internal/client redislock/internal/wire", "github.com/redis/go-redis",
		"the same driver on the user's own client, which only its users import"},
	{"redlock", "driver internal/backoff internal/tracker internal/unanswered", "",
		"a majority is made of whatever drivers it is given; anylock gives it those of Redis servers"},
	{"etcdlock", "driver internal/backoff internal/heap internal/storelayout internal/storeurl internal/tlsurl internal/tracker", "go.etcd.io/etcd google.golang.org/grpc go.uber.org/zap",
		"a store knows the seam and its own client, for which gRPC has the codes of errors and zap the logger to keep quiet"},
	{"zklock", "driver internal/storelayout internal/tlsurl internal/tracker internal/unanswered", "github.com/go-zookeeper/zk",
		"a store knows the seam and its own client"},
	{"natslock", "driver internal/backoff internal/storelayout internal/tlsurl", "github.com/nats-io/nats.go",
		"a store knows the seam and its own client"},
	{"mysqllock", "driver internal/backoff internal/sqlqueue", "github.com/go-sql-driver/mysql",
		"a store knows the seam, its own client, and the core that the SQL stores share"},
	{"pglock", "driver internal/sqlqueue", "github.com/jackc/pgx github.com/jackc/puddle",
		"a store knows the seam, its own client, and the core that the SQL stores share"},
	{"sqlitelock", "driver internal/backoff internal/sqlqueue", "modernc.org/sqlite github.com/fsnotify/fsnotify golang.org/x/sys",
		"a store knows the seam, its own client, and the core that the SQL stores share; file notification and boot time come from the system"},
	{"internal/backoff", "", "",
		"what the core and stores share below the seam rests on the standard library, because the core does"},
	{"internal/heap", "", "",
		"what the core and stores share below the seam rests on the standard library, because the core does"},
	{"internal/tombstone", "", "",
		"what the core and stores share below the seam rests on the standard library, because the core does"},
	{"internal/tracker", "driver internal/tombstone", "",
		"what drivers know of a ticket is the same for all stores, in the words of the seam"},
	{"internal/unanswered", "", "",
		"how many requests a silent store may keep under way is the same for all of them"},
	{"internal/storeurl", "", "",
		"hosts and options of stores' URLs are read alike, and no store is known"},
	{"internal/storelayout", "driver", "",
		"stores without a version of their own read that of the whole store alike"},
	{"internal/tlsurl", "", "",
		"what stores' URLs say about TLS is the same for all of them, and knows none"},
	{"internal/sqlqueue", "driver", "",
		"what the SQL stores share speaks database/sql and nothing of one database"},

	{"internal/plainhttp", "", "",
		"how requests and answers travel knows neither locks nor servers"},
	{"internal/lockclient", "driver internal/backoff internal/plainhttp internal/tlsurl", "",
		"a client of lock servers knows the seam and their HTTP, and not the handler"},

	{"anylock", ". driver internal/backoff internal/lockclient " + linked, "",
		"the one place that knows every store"},
	{"fence", "", "",
		"a protected resource refuses old tokens without taking on the lock"},
	{"fence/redisfence", "fence", "",
		"the guard is text for whatever client the program has"},
	{"fence/sqlfence", "fence", "",
		"the guard is statements for whatever driver of database/sql the program has"},
	{"fence/httpfence", "fence", "",
		"the header and its check need what the standard library has"},
	{"internal/testkit/paused", ". fence internal/lockclient lockserver memlock", "",
		"a holder for the tests of all guards, paused past its lease"},
	{"stock", "driver", "github.com/redis/rueidis",
		"a shard decides in one step and needs no lock; errors have the classes of the seam; databases bring their own driver of database/sql"},
	{"internal/cli", ". anylock lockserver lockserver/lockauth slogholdfast internal/safety/torture internal/cli/bench internal/cli/*",
		"github.com/coreos/go-systemd github.com/spf13/cobra github.com/spf13/pflag github.com/mattn/go-isatty golang.org/x/sys golang.org/x/term",
		"verbs speak to stores through anylock only"},
	{"internal/cli/*", "internal/cli/guard", "golang.org/x/sys golang.org/x/term",
		"parts of the command that know nothing of locks"},
	{"cmd/holdfast", "internal/cli", "",
		"main stays so small that it needs no test"},

	{"drivertest", ". driver memlock internal/testkit/faults", "go.uber.org/goleak",
		"the suite runs on any driver and needs none but the specification; it looks for goroutines left behind"},
	{"internal/testkit/servers", "driver", "go.uber.org/goleak",
		"starts real servers for tests, and speaks to them by their own tools"},
	{"internal/testkit/broken", "driver memlock", "",
		"flaws are planted in the two stores that live in memory"},
	{"internal/testkit/sqlcases", ". driver drivertest internal/sqlqueue", "",
		"what the SQL stores are tested for alike knows their lines and no database"},
	{"internal/testkit/*", ". driver", "go.uber.org/goleak",
		"disturbances run on any driver, as the suite does"},
	{"internal/safety/checker", "", "github.com/anishathalye/porcupine golang.org/x/sys",
		"a history is judged by what is in it, whatever made it; boot time, which processes agree on, comes from the system"},
	{"internal/safety/trace/tracetest", "driver internal/safety/torture internal/safety/trace internal/testkit/faultproxy internal/testkit/faults", "",
		"the torture that is recorded is the same in tests of this module and in those of modules with a client library of their own"},
	{"internal/safety/*", ". driver anylock internal/safety/checker internal/safety/answer internal/testkit/faults", "",
		"the safety harness reaches stores as a user does, with the faults of the suite before them"},
	{"internal/cli/bench", ". driver anylock internal/safety/checker", "",
		"scenarios reach a store as a user does, and what measures them knows no other lock; peers have a module of their own"},
	{"internal/redisrights", "driver drivertest internal/testkit/servers", "",
		"users of Redis servers, for the suite, are the same on one server and on several"},
	{"internal/docsgen/handover", "", "github.com/creack/pty",
		"runs the command on terminals, as a user does, and draws what they showed"},
	{"internal/docsgen", "driver anylock internal/cli internal/docsgen/handover internal/versions " + linked, "github.com/spf13/cobra github.com/spf13/pflag",
		"writes documentation out of what the code says about itself"},
	{"internal/apidump", "", "",
		"lists what any package exports, from what the compiler wrote about it"},
	{"internal/cli/manpage", "internal/cli", "github.com/spf13/cobra github.com/spf13/pflag",
		"manual pages come from the help of a command; the test takes ours"},
	{"scripts/*", "internal/testkit/servers", "",
		"what the scripts cannot do in shell"},
	{"internal/layering", "", "",
		"checks everybody, so it depends on nobody"},
	{"internal/proof", "internal/safety/trace", "",
		"runs a model checker and reads what it says; the specifications are no Go, and traces of the code are held against them"},
	{"lockserver", ". driver lockserver/internal/metrics lockserver/internal/page", "",
		"the handler takes a client, whatever its store; listeners, TLS and files belong to the program"},
	{"lockserver/internal/metrics", ". internal/lockmetrics", "",
		"counts and their text format are no reason for a client library of metrics"},
	{"lockserver/internal/page", "", "",
		"three files for browsers, which speak to the server as every client does"},
	{"clients/*", ". anylock lockserver", "",
		"servers for the tests of clients in other languages take any store"},
	{"lockserver/lockauth", "lockserver", "",
		"who may do what is the same for the command and for a program that embeds the handler"},
	{"slogholdfast", ".", "",
		"an Observer needs the library's events and the standard library's log, and nothing of a store"},
	{"otelholdfast", ". internal/lockmetrics", "go.opentelemetry.io/otel",
		"an Observer needs the library's events and its own client of metrics"},
	{"promholdfast", ". internal/lockmetrics", "github.com/prometheus",
		"an Observer needs the library's events and its own client of metrics"},
	{"gocronholdfast", ".", "github.com/go-co-op/gocron",
		"an adapter needs the library and the scheduler that it adapts to"},
	{"internal/lockmetrics", ".", "",
		"what the modules of metrics decide alike knows no client of metrics"},
	{"internal/versions", "", "",
		"is a file that one tool writes and another reads"},
	{"internal/platforms", "", "",
		"reads sources as the compiler does, those of packages that it must not depend on"},
	{"internal/testlog", "internal/versions", "",
		"reads what go test says, and keeps on which servers all was well"},
	{"examples/*", "*", "github.com/redis/rueidis modernc.org/sqlite",
		"examples are users: they may take any public package, and have a database to protect"},
}

// testOnly are packages that exist for tests and tools; production code must
// not reach them, because the shortcuts of a test helper are wrong in a user's
// program.
var testOnly = []string{
	"drivertest", "internal/testkit/*", "internal/safety/*",
	"internal/cli/bench", "internal/docsgen", "internal/docsgen/handover", "internal/layering", "internal/cli/manpage", "internal/proof", "internal/redisrights", "internal/platforms", "internal/testlog", "internal/versions", "scripts/*",
}

// reaching has the other packages that may reach a testOnly package, and the
// reasons.
var reaching = map[string]string{
	"internal/cli internal/safety/checker": "what the harness judges with",
	"internal/cli internal/safety/answer":  "what the harness judges with",
	"internal/cli internal/safety/torture": "holdfast torture runs the harness",
	"internal/cli internal/cli/bench":      "holdfast bench runs the scenarios",
	"cmd/holdfast internal/cli/bench":      "by way of internal/cli",
	"cmd/holdfast internal/safety/answer":  "by way of internal/cli",
	"internal/cli internal/testkit/faults": "holdfast torture loses requests on purpose",
	"cmd/holdfast internal/safety/checker": "by way of internal/cli",
	"cmd/holdfast internal/safety/torture": "by way of internal/cli",
	"cmd/holdfast internal/testkit/faults": "by way of internal/cli",
}

var importRules = []Rule{
	{"imports", "arrows run one way; a dependency is a decision to be defended", checkImports},
	{"stores apart", "a store must be usable, and removable, without any other", checkStoresApart},
	{"decisions", "code that only decides neither sends nor waits, so that each decision is made at one instant and can be tested without a store", checkWithout},
	{"test code", "what exists for tests must not be reachable from production code", checkReach},
	{"no cgo", "the command builds with CGO_ENABLED=0 and runs on any Linux", checkCgo},
}

// rowOf returns the row of a package: an exact one before one with "/*".
func rowOf(p string) (Row, bool) {
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Package == p })
	if i < 0 {
		i = slices.IndexFunc(rows, func(r Row) bool { return strings.HasSuffix(r.Package, "/*") && match(r.Package, p) })
	}
	if i < 0 {
		return Row{}, false
	}
	return rows[i], true
}

// match reports whether a pattern ("driver", "examples/*", "*") covers a path.
func match(pattern, p string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(p, prefix)
	}
	return pattern == p
}

func checkImports(t *Tree) (bad []string) {
	for _, p := range t.Packages {
		if len(p.Code()) == 0 {
			continue
		}
		row, ok := rowOf(p.Path)
		if !ok {
			bad = append(bad, fmt.Sprintf("package %s has no row in the table of internal/layering/rules.go", p.Path))
			continue
		}
		own, others := t.Imports(p)
		barred := slices.DeleteFunc(own, row.ownMay)
		barred = append(barred, slices.DeleteFunc(others, row.foreignMay)...)
		for _, name := range barred {
			bad = append(bad, fmt.Sprintf("package %s imports %s, but %s", p.Path, name, row.Reason))
		}
	}
	return bad
}

func (r Row) ownMay(name string) bool {
	return covers(strings.Fields(r.Own), name)
}

func (r Row) foreignMay(name string) bool {
	if name == "C" || std(name) {
		return true // cgo has a rule of its own
	}
	return slices.ContainsFunc(strings.Fields(r.Foreign), func(m string) bool {
		return m == "*" || name == m || strings.HasPrefix(name, m+"/")
	})
}

// without has the files that decide and neither send nor wait, and what they
// therefore may not import. A path ends in "/*" for all files of a folder.
var without = []struct{ Files, Imports string }{
	{"internal/tracker/*", "context net net/http os sync"},
	{"etcdlock/layout.go", "context net net/http os sync"},
	{"etcdlock/transaction.go", "context net net/http os sync"},
	{"queue.go", "context net net/http os"},
	{"waiters.go", "context net net/http os sync"},
	{"ending.go", "context net net/http os sync"},
	{"redislock/internal/wire/*", "context net net/http os sync"},
}

func checkWithout(t *Tree) (bad []string) {
	for _, w := range without {
		for _, p := range t.Packages {
			for _, f := range p.Code() {
				if !match(w.Files, f.Path) {
					continue
				}
				for _, spec := range f.AST.Imports {
					if name, _ := strconv.Unquote(spec.Path.Value); slices.Contains(strings.Fields(w.Imports), name) {
						bad = append(bad, f.Path+" imports "+name)
					}
				}
			}
		}
	}
	return bad
}

// checkStoresApart does not trust the table: it follows the imports.
func checkStoresApart(t *Tree) (bad []string) {
	all := strings.Fields(stores)
	for _, s := range all {
		p := t.Package(s)
		if p == nil {
			continue
		}
		for name, way := range t.Reach(p) {
			if slices.Contains(all, name) || name == "." || name == "anylock" {
				bad = append(bad, strings.Join(way, " → "))
			}
		}
	}
	return sorted(bad)
}

func checkReach(t *Tree) (bad []string) {
	for _, p := range t.Packages {
		if !production(p.Path) {
			continue
		}
		for name, way := range t.Reach(p) {
			if covers(testOnly, name) && reaching[p.Path+" "+name] == "" {
				bad = append(bad, strings.Join(way, " → "))
			}
		}
		_, others := t.Imports(p)
		for _, name := range others {
			if name == "testing" || strings.HasPrefix(name, "testing/") {
				bad = append(bad, p.Path+" → "+name)
			}
		}
	}
	return sorted(bad)
}

func checkCgo(t *Tree) (bad []string) {
	for _, p := range t.Packages {
		if _, others := t.Imports(p); slices.Contains(others, "C") {
			bad = append(bad, "package "+p.Path)
		}
	}
	return bad
}

// production reports whether a package becomes part of a user's program.
func production(p string) bool {
	return !covers(testOnly, p) && !match("examples/*", p)
}

// public reports whether users import a package.
func public(p *Package) bool {
	return p.Name != "main" && !slices.Contains(strings.Split(p.Path, "/"), "internal") && !match("examples/*", p.Path)
}

func covers(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(m string) bool { return match(m, p) })
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
