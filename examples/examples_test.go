//go:build unix

// Package examples_test runs the programs in the folders below, and compares what
// they say with what a reader is to notice.
package examples_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// example is a program, and what it must say: a regular expression for each
// line, and no other lines.
type example struct {
	name  string
	alone bool // one process, so that it can do without a shared store
	says  []string
}

var examples = []example{
	{"config", true, []string{
		`6 processes read 48 times, up to [2-6] at a time, while one wrote 4 times`,
		`0 of them read half of an old setting`,
	}},
	{"counter", true, []string{
		`without a lock: \d+ of 2000 additions are left`,
		`under the lock: 2000 of 2000`,
	}},
	{"crash", false, []string{
		`process \d+ holds the lock, with token \d+ and a TTL of 2s`,
		`it was killed`,
		`the next holder has the lock after ([1-9]\d*(\.\d+)?s|[1-9]\d\dms)`,
	}},
	{"cron", true, []string{
		`3 hosts asked, 1 made the report`,
		`host 4 asks late, and hears that host [1-3] made it`,
	}},
	{"fencing", false, []string{
		`the first process holds with token \d+, and is about to write`,
		`it is paused, for longer than its lease of 1s`,
		`the second process holds with token \d+, and has written new data`,
		`the first process wakes up and writes, late`,
		`without the check there is now: old data`,
		`with the check the write was refused: a later holder has written; there is still: new data`,
	}},
	{"leader", true, []string{
		`(ann|bob) leads, in term \d+`,
		`(ann|bob) steps down`,
		`(ann|bob) leads, in term \d+`,
		`(ann|bob) steps down`,
	}},
	{"longwork", true, []string{
		`the work takes 6s, the lease lasts 3s`,
		`after 1.5s another is refused`,
		`after 3s another is refused`,
		`after 4.5s another is refused`,
		`after 6s another is refused`,
		`the work is done, and the other has the lock`,
	}},
	{"migrate", true, []string{
		`3 migrations were made, by 1 of 4 instances`,
		`a late one with an old token: refused: a later holder has been here`,
	}},
	{"nested", true, []string{
		`the order holds the lock`,
		`the charge holds it too, inside of the order's hold`,
		`the charge is made: the order still holds, and another is refused`,
		`the order is placed: the lock is free`,
		`a charge holds it alone`,
	}},
	{"pool", true, []string{
		`without a semaphore: up to \d+ calls at a time`,
		`with 5 permits: up to [2-5] of 24 calls at a time`,
		`no more than 5 began within any 200ms`,
	}},
	{"resume", true, []string{
		`worker 1: step 1 of 4`,
		`worker 1: step 2 of 4`,
		`worker 1 has to end, and detaches`,
		`between the two, another job is refused`,
		`worker 2: step 3 of 4`,
		`worker 2: step 4 of 4`,
		`worker 2: done, and releases`,
		`the token is the same, since the hold is: true`,
		`the other job has the lock, and a later token: true`,
	}},
	{"shutdown", true, []string{
		`the work is asked to stop: client is shutting down`,
		`the work ends; until now another client is refused`,
		`Shutdown has returned, and another client holds`,
	}},
	{"stock", false, append(slices.Repeat([]string{`process \d sold \d+ units`}, 8),
		`sold 200 different units of 200, 0 are left`,
	)},
	{"stranger", true, []string{
		`ann unlocked a second time: bob still holds`,
		`bob unlocked what he had lost, and was told so: ann still holds`,
	}},
	{"transfer", true, []string{
		`60 transfers by 4 tellers, both ways: nobody waited for ever`,
		`ann has 1030, bob has 970, together 2000`,
	}},
	{"trouble", true, []string{
		`holdfast: "examples/trouble" is held by pid \d+ on \S+ since \S+ \(ann\)`,
		`holdfast: wait for "examples/trouble" ended after \S+, held by pid \d+ on \S+ since \S+ \(ann\): context deadline exceeded`,
		`holdfast: wait for "examples/trouble" ended after \S+, held by pid \d+ on \S+ since \S+ \(ann\): MaxWait is over`,
		`holdfast: "examples/trouble": in use as another kind of lock: mutex there, semaphore of 3 asked for`,
		`holdfast: lost "examples/trouble": gone from the store \(token \d+\)`,
		`holdfast: lost "examples/trouble": gone from the store \(token \d+\)`,
		`holdfast: "examples/trouble": no such ticket`,
		`holdfast: lost "examples/trouble": held for the longest time allowed \(token \d+\)`,
		`holdfast: "examples/trouble/rw": a hold cannot be widened: inside a read lock of the same name`,
		`holdfast: wait for "examples/trouble" ended after 0s: lock released`,
		`holdfast: "examples/trouble": client closed`,
		`client is shutting down`,
		`holdfast: shutdown: still held: "examples/trouble": context deadline exceeded`,
		`holdfast: TTL 1ms is below this store's minimum of \S+`,
		`holdfast: open: redislock: 127.0.0.1:1: store unavailable: cannot connect: dial tcp 127.0.0.1:1: .+`,
	}},
}

// TestTableListsEveryExample: each folder is an example, and each example is in the table.
func TestTableListsEveryExample(t *testing.T) {
	var names []string
	for _, e := range examples {
		names = append(names, e.name)
	}
	folders, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for i := range folders {
		folders[i] = filepath.Dir(folders[i])
	}
	if !slices.Equal(names, folders) {
		t.Errorf("the table has %q, and the folders are %q", names, folders)
	}
}

// apart is a store for each client, so that nobody excludes anybody. It shows
// that an example would fail without a lock.
const apart = "stores apart"

// needNobody are the examples whose point is another: nested has one client, and
// fencing is right however many hold.
var needNobody = []string{"fencing", "nested"}

// TestExamples runs every example as a reader does: without a word about the
// store, and with -store. They mostly wait, so several run at a time.
func TestExamples(t *testing.T) {
	programs := build(t)
	stores := map[string]string{"the default": "", "memory": "memory:examples", "redis": "", apart: "memory:"}
	turn := make(chan struct{}, 8) // so many processes at a time
	type result struct {
		out []byte
		err error
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "redis" {
				store = servers.SharedRedis(t).URL("")
			}
			said, states := make([]chan result, len(examples)), t.TempDir()
			for i, e := range examples {
				if name == "memory" && !e.alone || name == apart && slices.Contains(needNobody, e.name) {
					continue
				}
				said[i] = make(chan result, 1)
				go func() {
					turn <- struct{}{}
					defer func() { <-turn }()
					out, err := programs.run(t.Context(), e.name, store, filepath.Join(states, e.name))
					said[i] <- result{out, err}
				}()
			}
			for i, e := range examples {
				if said[i] == nil {
					continue
				}
				t.Run(e.name, func(t *testing.T) {
					r := <-said[i]
					err := errors.Join(r.err, e.check(string(r.out)))
					if name == apart {
						if err == nil {
							t.Errorf("it should have failed where nobody excludes anybody; it said:\n%s", r.out)
						}
					} else if err != nil {
						t.Errorf("%v; it said:\n%s", err, r.out)
					}
				})
			}
			_, err := os.Stat(filepath.Join(states, "counter", "locks.db"))
			if used := err == nil; used != (name == "the default") {
				t.Errorf("that the file of the default was used is %v", used)
			}
		})
	}
}

// check compares what an example said with what it must say.
func (e example) check(out string) error {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for i, want := range e.says {
		if i == len(lines) {
			return fmt.Errorf("the line %q is missing", want)
		}
		if !regexp.MustCompile(`^(?:` + want + `)$`).MatchString(lines[i]) {
			return fmt.Errorf("line %d should be %q", i+1, want)
		}
	}
	if len(lines) > len(e.says) {
		return fmt.Errorf("line %d should not be there", len(e.says)+1)
	}
	return nil
}
