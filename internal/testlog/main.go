// Command testlog reads what `go test -json` prints and says what a person
// wants to know: the line of each package, everything that a failed test
// printed, every test that was skipped and why, and the totals.
//
// Usage:
//
//	go test -json ./... | go run ./internal/testlog [-noskip] [-listed FILE]
//
// It exits with 1 when a test or a package failed, when no test ran, and, with
// -noskip, when one was skipped: a test that does not run proves nothing, and
// where everything can run that counts as a failure. With -listed, every test
// that FILE names as `redislock.TestLocks/order` has to have passed.
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
)

func main() {
	noskip := flag.Bool("noskip", false, "fail when a test was skipped")
	listed := flag.String("listed", "", "fail when a test that this file names has not passed")
	flag.Parse()
	var page []byte
	if *listed != "" {
		var err error
		if page, err = os.ReadFile(*listed); err != nil {
			fmt.Fprintln(os.Stderr, "testlog:", err)
			os.Exit(1)
		}
	}
	ok, err := report(os.Stdin, os.Stdout, *noskip, named(page))
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// event is one line of test2json (see `go doc test2json`).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// id names a test; a package itself has an empty test.
type id struct{ pkg, test string }

type log struct {
	w                       io.Writer
	output                  map[id][]string     // of what has not ended yet
	all                     map[string][]string // of a package that has not ended yet, in order
	loud                    map[string]bool     // packages of which a failure was printed
	done                    map[string]bool     // tests that passed, with the last parts of their package's path
	skips                   []string
	passed, failed, skipped int
	broken                  bool // a package failed, with or without a failed test
}

// testName is how a page names a test: package, a dot, and the test.
var testName = regexp.MustCompile("`([a-z][\\w/]*\\.Test[^` ]+)`")

// named lists the tests that a page names.
func named(page []byte) (names []string) {
	for _, m := range testName.FindAllSubmatch(page, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// report copies from r to w what matters and says whether all is well, and all
// tests that are listed passed.
func report(r io.Reader, w io.Writer, noskip bool, listed []string) (bool, error) {
	l := &log{w: w, output: map[id][]string{}, all: map[string][]string{}, loud: map[string]bool{}, done: map[string]bool{}}
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
			return false, err
		}
	}
	ok := l.close(noskip)
	for _, name := range listed {
		if !l.done[name] {
			fmt.Fprintf(w, "listed, and has not passed: %s\n", name)
			ok = false
		}
	}
	return ok, nil
}

func (l *log) take(e event) {
	at := id{e.Package, e.Test}
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
		for rest, more := at.pkg, true; more; _, rest, more = strings.Cut(rest, "/") {
			l.done[rest+"."+at.test] = true
		}
	case "fail":
		l.failed++
		l.loud[at.pkg] = true
		l.print(l.output[at])
	case "skip":
		l.skipped++
		l.skips = append(l.skips, fmt.Sprintf("%s %s: %s", at.pkg, at.test, reason(l.output[at])))
	}
}

func (l *log) endPackage(at id, failed bool) {
	l.broken = l.broken || failed
	if failed { // also what a test printed that a crash or a time-out ended
		var cut []id
		for other := range l.output {
			if other.pkg == at.pkg && other.test != "" {
				cut = append(cut, other)
			}
		}
		slices.SortFunc(cut, func(a, b id) int { return strings.Compare(a.test, b.test) })
		for _, other := range cut {
			l.failed++
			l.loud[at.pkg] = true
			l.print(l.output[other])
			delete(l.output, other)
		}
		if !l.loud[at.pkg] {
			// No test failed, but the package did: a data race or a leak, told
			// among the words of a test that passed.
			l.print(l.all[at.pkg])
			return
		}
		l.print(l.output[at])
		return
	}
	for _, line := range l.output[at] {
		if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") {
			fmt.Fprint(l.w, line)
		}
	}
}

func (l *log) print(lines []string) {
	for _, line := range lines {
		if strings.HasPrefix(line, "=== ") { // RUN, PAUSE, CONT, NAME
			continue
		}
		fmt.Fprint(l.w, line)
	}
}

// reason is what a skipped test said, on one line.
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
