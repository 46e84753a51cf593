package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quote is a sentence of a page that was once not so, and what proves it now: a
// test by its file and name, or a case of the shared suite by its file and name.
type quote struct {
	page, text string
	proof      []string
}

// quotes stand here as they stand on their pages, but for the ends of lines.
var quotes = []quote{
	{"guarantees.md", "on Redis, a waiter whose connection for pushes is down keeps its place, and others may be granted before it until it is connected again",
		[]string{"redislock/expired_test.go TestSilentClientIsPassedOver"}},
	{"guarantees.md", "`Unlock` is bounded by a third of the TTL, at least 100 ms and at most 5 s",
		[]string{"fault_test.go TestF7_UnlockIsBoundedByItsTTL"}},
	{"guarantees.md", "The token is the greater of the last one that the server granted + 1 and its clock, on every grant, so neither alone does it",
		[]string{"drivertest/cases_store.go idle-counter", "drivertest/cases_store.go clock-back"}},
	{"guarantees.md", "ZooKeeper's TTLs follow from the settings of its servers; these are for the default `tickTime` of 2 s",
		[]string{"zklock/ttl_test.go TestTTLsFollowFromTheTick"}},
	{"stores/etcd.md", "Goroutines that wait behind a hold of their own process take their places there when it ends: clients that have come to the store meanwhile go first",
		[]string{"queue_test.go TestLocalWaitersQueueWhenTheirHoldEnds"}},
	{"stores/zookeeper.md", "Goroutines that wait behind a hold of their own process take their places there when it ends: clients that have come to the server meanwhile go first",
		[]string{"queue_test.go TestLocalWaitersQueueWhenTheirHoldEnds"}},
	{"stores/etcd.md", "A read/write lock or a semaphore does not wait for them: as long as a foreign key is in the queue, it is refused",
		[]string{"drivertest/cases_join.go foreign-limit"}},
	{"stores/etcd.md", "the server reads every key of a queue for a question about the whole of it",
		[]string{"etcdlock/longqueue_bench_test.go BenchmarkTryBesideWaiters"}},
	{"stores/etcd.md", "the renewal of a waiter for a mutex, from 100 places on, is about the place before it alone",
		[]string{"etcdlock/deepqueue_test.go TestF130_RenewalsInADeepQueueReadNoQueue"}},
	{"stores/redis.md", "its own tickets wait for it or for its replica; no others do",
		[]string{"fault_lanes_test.go TestF108_SilentLanesAmongMany"}},
	{"stores/redis.md", "One key remains, `holdfast_mark`", []string{"drivertest/cases_longlived.go aged"}},
	{"stores/sqlite.md", "each name would be a store of its own. Mount the folder instead",
		[]string{"sqlitelock/elsewhere_test.go TestF128_TwoNamesAreRefused"}},
	{"stores/sqlite.md", "while any process has it open, a process with another boot id",
		[]string{"sqlitelock/elsewhere_test.go TestF127_AnotherBootIDIsRefusedWhileInUse"}},
	{"stores/postgresql.md", "| renewing 1,000 locks | 4 | 8 |", []string{"pglock/cost_test.go TestRequestCosts"}},
	{"stores/postgresql.md", "Each client in use deletes the rows of queues that have been idle for a minute",
		[]string{"drivertest/cases_rows.go idle-rows"}},
	{"stores/mysql.md", "A queue's row can be locked by hand (`SELECT … FOR UPDATE`), and stops its queue for as long",
		[]string{"drivertest/cases_rows.go locked-row"}},
	{"stores/postgresql.md", "locks are taken all the same, and waiters ask by themselves",
		[]string{"pglock/fault_listen_test.go TestF124_LockWithoutListener"}},
	{"ttl.md", "Programs need not agree on a TTL", []string{"fault_lanes_test.go TestF109_MixedTTLs"}},
	{"operations.md", "You need not clean up: the store's driver removes keys, rows and nodes of unused names",
		[]string{"drivertest/cases_rows.go idle-rows", "drivertest/cases_longlived.go aged"}},
}

// noLonger are sentences that were not so, and that must not come back.
var noLonger = map[string][]string{
	"performance.md": {"some 2 µs each when warm", "none of them can go"},
	"stores/etcd.md": {"as a mutex would"},
	"ttl.md":         {"Nobody has to agree on a TTL"},
}

// oneLine replaces the ends of lines by spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestSentencesAreProved checks that sentences that were once not so stand on their
// pages as they are quoted here, and that the tests that prove them exist.
func TestSentencesAreProved(t *testing.T) {
	for _, s := range quotes {
		page, err := os.ReadFile(filepath.Join("../../docs", s.page))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(oneLine(string(page)), s.text) {
			t.Errorf("docs/%s does not say %q: change the quotation, and look whether the test still proves it", s.page, s.text)
		}
		if len(s.proof) == 0 {
			t.Errorf("docs/%s: nothing proves %q", s.page, s.text)
		}
		for _, proof := range s.proof {
			file, name, _ := strings.Cut(proof, " ")
			code, err := os.ReadFile(filepath.Join("../..", file))
			if err != nil {
				t.Error(err)
				continue
			}
			is := regexp.MustCompile(`(?m)^func ` + name + `\(|\{Name: "` + name + `"`)
			if !is.Match(code) {
				t.Errorf("docs/%s: %s, which proves %q, does not exist in %s", s.page, name, s.text, file)
			}
		}
	}
	for page, texts := range noLonger {
		has, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if strings.Contains(oneLine(string(has)), text) {
				t.Errorf("docs/%s says %q again, which is not so", page, text)
			}
		}
	}
}

// TestOperationsTablesNameEachStore checks that each product with a page of its own
// has its row in the tables of operations.md about backups and clocks.
func TestOperationsTablesNameEachStore(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/stores/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages of stores: %v", err)
	}
	products := map[string][]string{ // of a page whose name is not that of the product
		"sqlite": {"SQLite"}, "redis": {"Redis"}, "redlock": {"RedLock"}, "etcd": {"etcd"}, "nats": {"NATS JetStream"},
		"postgresql": {"PostgreSQL"}, "mysql": {"MySQL", "MariaDB"}, "zookeeper": {"ZooKeeper"},
	}
	for _, heading := range []string{"Backups", "Clocks"} {
		_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var rows strings.Builder
		for row := range strings.Lines(section) {
			if cells := strings.Split(row, "|"); len(cells) > 2 {
				rows.WriteString("," + cells[1])
			}
		}
		for _, page := range pages {
			names := products[strings.TrimSuffix(filepath.Base(page), ".md")]
			if len(names) == 0 {
				t.Errorf("which product has the page %s?", page)
			}
			for _, name := range names {
				if !regexp.MustCompile(`, *` + name + ` *(,|$)`).MatchString(rows.String()) {
					t.Errorf("the table of section %s has no row of %s: %s", heading, name, rows.String())
				}
			}
		}
	}
}
