//go:build linux

package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var (
	lane      = flag.Bool("clients", false, "run the lane, which needs the languages' tool chains")
	processes = flag.Int("clients.processes", 5, "processes of each language")
	tasks     = flag.Int("clients.tasks", 10, "clients in each process: threads or tasks")
	turns     = flag.Int("clients.turns", 4, "turns of each client")
	languages = flag.String("clients.languages", "go python node sh java", "languages that take part")
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asServer:
			exit(serve(os.Stdin, os.Stdout))
		case asWorker:
			exit(work(os.Stdin, os.Stdout, os.Args[2:]))
		}
	}
	servers.Main(m)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// language is a client: its worker, and the clock of the worker's events.
type language struct {
	command []string // NAME TASKS TURNS FILE follow
	clock   int32    // of the system
}

// workers are the programs that count. Each writes the events of package checker.
var workers = map[string]language{
	"go":     {nil, unix.CLOCK_BOOTTIME},
	"python": {[]string{"python3", "python/tests/worker.py"}, unix.CLOCK_BOOTTIME},
	"node":   {[]string{"node", "node/test/worker.js"}, unix.CLOCK_MONOTONIC},
	"sh":     {[]string{"sh", "sh/worker.sh"}, unix.CLOCK_REALTIME},
	"java":   {[]string{"java", "-Xmx64m", "-cp", "java/target/classes:java/target/test-classes", "io.github.holdfastgo.Worker"}, unix.CLOCK_MONOTONIC},
}

// toBoot returns what has to be added to a clock's time to get boot time.
func toBoot(t *testing.T, clock int32) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		t.Fatal(err)
	}
	return checker.Now() - ts.Nano()
}

func TestLanguagesCountExactlyThroughTwoServers(t *testing.T) {
	if !*lane {
		return // make clients
	}
	t.Run("sqlite", func(t *testing.T) { count(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db")) })
	t.Run("redis", func(t *testing.T) { count(t, servers.SharedRedis(t).URL("")) })
	t.Run("etcd", func(t *testing.T) { count(t, servers.Etcd(t, servers.EtcdOptions{}).URL("")) })
	t.Run("postgres", func(t *testing.T) {
		count(t, servers.Postgres(t, servers.PostgresOptions{Settings: []string{"max_connections=300"}}).URL("postgres", ""))
	})
}

// count lets all languages count in one file under one lock, and judges the history.
func count(t *testing.T, store string) {
	addresses := startServer(t, store) + "," + startServer(t, store)
	file := filepath.Join(t.TempDir(), "count")
	if err := os.WriteFile(file, []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var (
		mu     sync.Mutex
		events []checker.Event
		failed []string
		all    sync.WaitGroup
		p      int
		began  = time.Now()
		by     = make(map[string]int) // turns of each language
		placed = make(map[string]int) // and its waits with a place that the checker knows
	)
	for name := range strings.FieldsSeq(*languages) {
		l, ok := workers[name]
		if !ok {
			t.Fatalf("-clients.languages: %q is none of go, python, node, sh, java", name)
		}
		shift := toBoot(t, l.clock)
		for range *processes {
			p++
			cmd := workerCommand(l, store, addresses, file)
			number := p
			all.Go(func() {
				got, err := run(cmd, number, shift)
				mu.Lock()
				defer mu.Unlock()
				events = append(events, got...)
				for _, e := range got {
					if e.What == checker.Done && e.Err == "" {
						by[name]++
					}
					if e.What == checker.Wait {
						placed[name]++
					}
				}
				if err != nil {
					failed = append(failed, name+": "+err.Error())
				}
			})
		}
	}
	all.Wait()
	for _, f := range failed {
		t.Error(f)
	}
	want := p * *tasks * *turns
	judge(t, events, want)
	for name, turns := range by {
		if placed[name] < turns/8 {
			t.Errorf("%s: %d of %d waits had a place that was told: too few to judge their order", name, placed[name], turns)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(b)); got != strconv.Itoa(want) {
		t.Errorf("%s turns were counted, want %d", got, want)
	}
	t.Logf("%d processes, %d clients, %d turns in %v: %v, of which waited with a place %v", p, p**tasks, want, time.Since(began).Round(time.Millisecond), by, placed)
}

// judge holds the history against the checker's rules.
func judge(t *testing.T, events []checker.Event, want int) {
	t.Helper()
	c := checker.NewChecker(checker.Rules{TTL: 30 * time.Second, Tokens: true, Fair: true, Slack: time.Minute, Takes: time.Minute})
	for _, e := range events {
		c.Add(e)
	}
	c.Finish()
	bad, more := c.Violations()
	for _, v := range bad {
		t.Error(c.Describe(v))
	}
	s := c.Stats()
	if more > 0 || s.Grants != int64(want) || s.Released != int64(want) || s.Overlaps != 0 || s.Lost != 0 {
		t.Errorf("%d grants, %d releases, %d overlaps, %d losses, %d more violations; want %d grants and releases, and nothing else",
			s.Grants, s.Released, s.Overlaps, s.Lost, more, want)
	}
	t.Logf("%d grants, %d released, %d overlaps, %d waits judged for order, longest wait %v", s.Grants, s.Released, s.Overlaps, s.Ordered, s.LongestWait.Round(time.Millisecond))
}

// workerCommand returns a worker, ready to be started.
func workerCommand(l language, store, addresses, file string) *exec.Cmd {
	args := []string{"clients/count", strconv.Itoa(*tasks), strconv.Itoa(*turns), file}
	if l.command == nil {
		cmd := exec.Command(os.Args[0], append([]string{asWorker}, args...)...)
		cmd.Stdin = strings.NewReader(store + "\n") // a URL may contain a password
		return cmd
	}
	cmd := exec.Command(l.command[0], append(l.command[1:len(l.command):len(l.command)], args...)...)
	cmd.Dir = filepath.Join("..", "..", "..", "clients")
	cmd.Env = append(cmd.Environ(), "HOLDFAST_SERVERS="+addresses)
	return cmd
}

// run carries out a worker, and returns its events in boot time.
func run(cmd *exec.Cmd, p int, shift int64) ([]checker.Event, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", cmd.Args[0], err, errs.String())
	}
	var events []checker.Event
	lines := bufio.NewScanner(&out)
	for lines.Scan() {
		var e checker.Event
		if bad := json.Unmarshal(lines.Bytes(), &e); bad != nil {
			return events, fmt.Errorf("event %q: %w", lines.Text(), bad)
		}
		e.T, e.P = e.T+shift, p
		if e.End > 0 {
			e.End += shift
		}
		events = append(events, e)
	}
	return events, err
}

// startServer starts a lock server, and returns its address.
func startServer(t *testing.T, store string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], asServer)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends with its standard input
		_ = cmd.Wait()
	})
	if _, err := fmt.Fprintln(in, store); err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	return strings.TrimSpace(address)
}
