// Command testlog reads the output of `go test -json` and prints a report for
// people: the line of each package, the whole output of a failed test, every
// test that was skipped and why, the totals, and the name of every test that
// failed. A test that was running when a panic, a time-out or a signal cut the
// run of its package counts as failed.
//
// Usage:
//
//	go test -json ./... | go run ./internal/testlog [-noskip] [-listed FILE]
//	go test -json ./redislock | go run ./internal/testlog -record FILE
//
// It exits with 1 if a test or a package failed, if no test ran, and, with
// -noskip, if a test was skipped: a test that does not run proves nothing, and
// where everything can run, a skipped test counts as a failure. With -listed,
// every test that FILE names, in words such as redislock.TestLocks/order, has to have
// passed.
// With -record, FILE names the servers of packages, in lines such as
//
//	redislock redis-8 8.0.2
//
// Each of these packages that has no failure is added to the record of servers
// (internal/versions), as one whose tests all passed there: -record is for
// scripts that run whole packages.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/versions"
)

func main() {
	noskip := flag.Bool("noskip", false, "fail when a test was skipped")
	listed := flag.String("listed", "", "fail when a test that this file names has not passed")
	record := flag.String("record", "", "put packages without a failure into the record of servers; this file has lines of package, server and version")
	flag.Parse()
	servers, err := serversOf(*record)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
	var list []byte
	if *listed != "" {
		var err error
		if list, err = os.ReadFile(*listed); err != nil {
			fmt.Fprintln(os.Stderr, "testlog:", err)
			os.Exit(1)
		}
	}
	names := named(list)
	if *listed != "" && len(names) == 0 {
		fmt.Fprintf(os.Stderr, "testlog: %s names no test\n", *listed)
		os.Exit(1)
	}
	ok, passes, err := report(os.Stdin, os.Stdout, *noskip, names)
	for _, p := range passes {
		for _, s := range servers[p.Package] {
			p.Server, p.Version, p.Date = s.Server, s.Version, time.Now().UTC().Format(time.DateOnly)
			if err == nil {
				err = versions.Add(versions.File, p)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// serversOf reads the servers of packages: in "redislock redis-8 8.0.2",
// everything after the second space is the version.
func serversOf(file string) (map[string][]versions.Pass, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	servers := map[string][]versions.Pass{}
	for line := range strings.Lines(string(data)) {
		part := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(part) != 3 {
			return nil, fmt.Errorf("%s: %q is not a package, a server and its version", file, line)
		}
		servers[part[0]] = append(servers[part[0]], versions.Pass{Server: part[1], Version: part[2]})
	}
	return servers, nil
}

// event is one line of test2json (see `go doc test2json`).
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Output  string
}

// id names a test; a package itself has an empty test.
type id struct{ pkg, test string }

type log struct {
	w                       io.Writer
	output                  map[id][]string     // of tests that have not ended yet
	all                     map[string][]string // of a package that has not ended yet, in order
	loud                    map[string]bool     // packages with a failure that was printed
	done                    map[string]bool     // tests that passed, with the last parts of their package's path
	skips                   []string
	fails                   []string                  // to be named once more at the end
	going                   map[id]span               // tests that have begun and not ended
	last                    time.Time                 // of the last event
	packages                map[string]*versions.Pass // the tests of a package that have run so far
	passes                  []versions.Pass           // packages whose tests all passed
	passed, failed, skipped int
	broken                  bool // a package failed, with or without a failed test
}

// testName matches the name of a test: package, a dot, and the test.
var testName = regexp.MustCompile(`^[a-z][\w/]*\.Test.+$`)

// named returns the tests that a list names. Its words are separated by white
// space; those that are no names of tests say what the tests are for.
func named(list []byte) (names []string) {
	for word := range strings.FieldsSeq(string(list)) {
		if testName.MatchString(word) {
			names = append(names, word)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// report copies the important lines from r to w, and reports whether all tests
// passed and all listed tests were among them. The passes are the packages
// without a failed test; they name no server.
func report(r io.Reader, w io.Writer, noskip bool, listed []string) (bool, []versions.Pass, error) {
	l := &log{w: w, output: map[id][]string{}, all: map[string][]string{}, loud: map[string]bool{}, done: map[string]bool{}, going: map[id]span{}, packages: map[string]*versions.Pass{}}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				l.take(e)
			} else {
				fmt.Fprint(w, line) // the go command's own words
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, nil, err
		}
	}
	l.endOpen()
	ok := l.close(noskip)
	for _, name := range listed {
		if !l.done[name] {
			fmt.Fprintf(w, "listed, and has not passed: %s\n", name)
			ok = false
		}
	}
	return ok, l.passes, nil
}

func (l *log) take(e event) {
	at := id{e.Package, e.Test}
	defer l.clock(e)
	switch e.Action {
	case "build-output":
		fmt.Fprint(l.w, e.Output)
	case "output":
		l.output[at] = append(l.output[at], e.Output)
		l.all[e.Package] = append(l.all[e.Package], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			l.endPackage(at, e.Action == "fail")
			delete(l.all, e.Package)
		} else {
			l.endTest(at, e.Action)
		}
		delete(l.output, at)
	}
}

func (l *log) endTest(at id, action string) {
	switch action {
	case "pass":
		l.passed++
		l.of(at.pkg).Tests++
		for rest, more := at.pkg, true; more; _, rest, more = strings.Cut(rest, "/") {
			l.done[rest+"."+at.test] = true
		}
	case "fail":
		l.failed++
		l.loud[at.pkg] = true
		l.fails = append(l.fails, at.pkg+" "+at.test)
		l.print(l.output[at])
	case "skip":
		l.skipped++
		l.skips = append(l.skips, fmt.Sprintf("%s %s: %s", at.pkg, at.test, reason(l.output[at])))
		ran := l.of(at.pkg)
		ran.Skipped = append(ran.Skipped, at.test)
	}
}

func (l *log) endPackage(at id, failed bool) {
	l.broken = l.broken || failed
	if failed {
		l.endCut(at.pkg)
		if !l.loud[at.pkg] {
			// No test failed, but the package did: a data race or a leak,
			// reported in the output of a test that passed.
			l.print(l.all[at.pkg])
			return
		}
		l.print(l.output[at])
		return
	}
	if ran := l.of(at.pkg); ran.Tests > 0 {
		slices.Sort(ran.Skipped)
		l.passes = append(l.passes, *ran)
	}
	for _, line := range l.output[at] {
		if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") {
			fmt.Fprint(l.w, line)
		}
	}
}

// of returns the record of a package's tests so far.
func (l *log) of(pkg string) *versions.Pass {
	if l.packages[pkg] == nil {
		l.packages[pkg] = &versions.Pass{Package: strings.TrimPrefix(pkg, "github.com/holdfast-go/holdfast/")}
	}
	return l.packages[pkg]
}

func (l *log) print(lines []string) {
	for _, line := range lines {
		if strings.HasPrefix(line, "=== ") { // RUN, PAUSE, CONT, NAME
			continue
		}
		fmt.Fprint(l.w, line)
	}
}

// reason returns the output of a skipped test, on one line.
func reason(lines []string) string {
	var said []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	if said == nil {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

func (l *log) close(noskip bool) bool {
	for _, s := range l.skips {
		fmt.Fprintln(l.w, "skipped:", s)
	}
	fmt.Fprintf(l.w, "%d passed, %d failed, %d skipped\n", l.passed, l.failed, l.skipped)
	for _, f := range l.fails {
		fmt.Fprintln(l.w, "failed:", f)
	}
	switch {
	case l.failed > 0 || l.broken:
		return false
	case l.passed == 0:
		fmt.Fprintln(l.w, "no test ran")
		return false
	case noskip && l.skipped > 0:
		fmt.Fprintln(l.w, "a skipped test counts as a failure here")
		return false
	}
	return true
}
