//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var (
	// consoleBlock is a session of a page. The comment before it has the commands that
	// come first and that readers do not see:
	//
	//	<!-- console: holdfast run nightly -- sleep 600 & -->
	//
	// A last line [status N] is the exit status of the command above it; a line ...
	// stands for any lines or none.
	consoleBlock = regexp.MustCompile("(?ms)^<!-- console: ([^\n]*) -->\n+```console\n(.*?)^```$")
	statusLine   = regexp.MustCompile(`(?s)^(.*?)(?:\[status (\d+)\]\n)?$`)
	ticketID     = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+`)
	colour       = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	wholeProgram = regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```$")
)

// shownRedis is the address of a Redis server in the sessions. Each session that has it
// gets a server of its own, whose process is $redis for the commands that come first.
const shownRedis = "127.0.0.1:16399"

// shownServer is the address of a lock server in the sessions, which start it. Each
// session that has it gets a free port.
const shownServer = "127.0.0.1:7420"

// varying are the parts of an output that differ from run to run and from machine to
// machine. Runs of spaces, the columns of tables, are one separator.
var varying = []struct{ pattern, by string }{
	{ticketID.String(), "TICKET"},
	{`(\[id=|\bid += ")[0-9a-f-]{36}`, "${1}ID"},
	{`pid \d+ on [^\s,;:]+`, "pid PID on HOST"},
	{`"host":"[^"]*","pid":\d+`, `"host":"HOST","pid":PID`},
	{`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`, "TIME"},
	{`\b\d{15,}\b`, "TOKEN"},
	{`"age_seconds":[0-9.]+`, `"age_seconds":AGE`},
	{`(ended after |lease ends in |waited=|held=|complete after )[0-9.]+(µs|ms|s)`, "${1}DURATION"},
	{`(uptime {2,})[0-9.]+s:`, "${1}DURATION:"},
	{`("topic":"uptime".*"detail":")[0-9.]+s:`, "${1}DURATION:"},
	{`(round trip {2,})\S+`, "${1}DURATION"},
	{`(differs from this machine's by) \S+`, "$1 DURATION"},
	{` {2,}[0-9.]+m?s( {2,})`, "  DURATION$1"}, // cells of a table, of which
	{` {2,}[0-9.]+m?s( {2,})`, "  DURATION$1"}, // two may be neighbours
	{`Redis \d+\.\d+\.\d+`, "Redis VERSION"},
	{`\d+ MiB used`, "N MiB used"},
	{` {2,}`, "  "},
	{`(?m)^bash: line \d+: .*\n`, ""}, // the shell's own messages
}

func alike(output string) string {
	for _, v := range varying {
		output = regexp.MustCompile(v.pattern).ReplaceAllString(output, v.by)
	}
	return output
}

// TestSessionsOfPagesPrintThat runs each session of the pages on a store of its own, and
// compares what is printed, and the statuses that are shown. Sessions with Terraform have
// a lane of their own.
func TestSessionsOfPagesPrintThat(t *testing.T) {
	binary := buildHoldfast(t)
	for _, page := range pages(t) {
		for _, s := range sessionsOf(t, page) {
			if s.has("terraform ") {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(t, binary)
			})
		}
	}
}

// buildHoldfast builds the command, and returns its path.
func buildHoldfast(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// sessionsOf returns the console blocks of a page.
func sessionsOf(t *testing.T, page string) (all []session) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range consoleBlock.FindAllStringSubmatchIndex(string(text), -1) {
		line := 1 + strings.Count(string(text[:m[4]]), "\n")
		s := session{
			name:   fmt.Sprintf("%s:%d", strings.TrimPrefix(page, "../../"), line),
			before: string(text[m[2]:m[3]]), text: string(text[m[0]:m[1]]),
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(string(text[m[4]:m[5]]), "$ "), "\n$ ") {
			command, shown, _ := strings.Cut(strings.TrimSuffix(part, "\n")+"\n", "\n")
			s.steps = append(s.steps, step{command: command, shown: shown})
		}
		if programs := wholeProgram.FindAllSubmatch(text[:m[0]], -1); programs != nil && s.has("./program") {
			s.program = programs[len(programs)-1][1]
		}
		all = append(all, s)
	}
	return all
}

// session is a console block of a page.
type session struct {
	name    string // the page and the line
	text    string // the block with the comment before it
	before  string
	program []byte // the last whole program above the block, which the session runs as ./program
	steps   []step
}

// step is a command, and what the page shows below it.
type step struct{ command, shown string }

// endOfStep is a line that the shell prints when a command has ended or is in the
// background, with its status.
const endOfStep = "-- end of step, status "

const omission = "...\n"

// theRest is the script of a session below its first commands.
const theRest = `
while IFS= read -r -u 3 command; do
	(exit $status)
	eval "$command"
	status=$?
	echo "` + endOfStep + `$status"
done
exec >/dev/null 2>&1
kill $(jobs -p)
wait
`

// run carries the session out, command by command. The programs are first in its PATH.
func (s session) run(t *testing.T, programs ...string) {
	folder := t.TempDir()
	env := []string{"PATH=" + pathOf(programs), "HOLDFAST_STORE=sqlite:" + filepath.Join(folder, "locks.db"), "LC_ALL=C", "TZ=UTC"}
	tree, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	env = append(env, "TREE="+tree, "PYTHONDONTWRITEBYTECODE=1")
	var here, shown []string // addresses
	if s.has(shownRedis) {
		redis := servers.Redis(t, servers.RedisOptions{})
		defer redis.Kill() // the session may have stopped it
		here, shown = append(here, shownRedis, redis.Addr()), append(shown, redis.Addr(), shownRedis)
		env = append(env, "redis="+strconv.Itoa(redis.PID()))
	}
	if s.has(shownServer) {
		free := fmt.Sprintf("127.0.0.1:%d", servers.FreePort(t))
		here, shown = append(here, shownServer, free), append(shown, free, shownServer)
	}
	toHere, toShown := strings.NewReplacer(here...), strings.NewReplacer(shown...)
	if s.program != nil {
		s.build(t, folder, toHere)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	commands, toShell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromShell, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer fromShell.Close()
	cmd := exec.CommandContext(ctx, "bash", "-c", toHere.Replace(s.before)+theRest)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = output, output, []*os.File{commands}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Start()
	commands.Close()
	output.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(fromShell); scanner.Scan(); {
			lines <- toShown.Replace(colour.ReplaceAllString(scanner.Text(), "")) + "\n"
		}
	}()
	tickets := strings.NewReplacer()
	for _, step := range s.steps {
		command := toHere.Replace(tickets.Replace(step.command))
		fmt.Fprintln(toShell, command)
		printed, status := step.await(ctx, lines)
		if got, want := step.compare(printed, status); got != want {
			t.Errorf("$ %s\nprints\n%sand the page shows\n%s", step.command, got, want)
			cancel()
			break
		}
		tickets = ticketsOf(step.shown, printed)
	}
	toShell.Close()
	for range lines {
		continue
	}
	if err := cmd.Wait(); err != nil && !t.Failed() && ctx.Err() != nil {
		t.Error(err)
	}
}

// pathOf returns a PATH that has the folders of programs first.
func pathOf(programs []string) string {
	var folders []string
	for _, program := range programs {
		folders = append(folders, filepath.Dir(program))
	}
	return strings.Join(append(folders, os.Getenv("PATH")), ":")
}

func (s session) has(text string) bool {
	return strings.Contains(s.before, text) || strings.Contains(string(s.program), text) ||
		slices.ContainsFunc(s.steps, func(step step) bool { return strings.Contains(step.command, text) })
}

// build makes ./program, for the servers of this session.
func (s session) build(t *testing.T, folder string, toHere *strings.Replacer) {
	t.Helper()
	source := filepath.Join(folder, "program.go")
	if err := os.WriteFile(source, []byte(toHere.Replace(string(s.program))), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(folder, "program"), source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// await returns what the command printed, and its status. It waits until as many lines
// have come as the page shows: output of commands in the background has no end that the
// shell could tell.
func (s step) await(ctx context.Context, lines <-chan string) (printed, status string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	shown := strings.ReplaceAll(statusLine.FindStringSubmatch(s.shown)[1], omission, "")
	want := strings.Count(alike(shown), "\n")
	for status == "" || strings.Count(alike(printed), "\n") < want {
		select {
		case line, ok := <-lines:
			if is, end := strings.CutPrefix(line, endOfStep); end {
				status = strings.TrimSpace(is)
			} else if printed += line; !ok {
				return printed + "(the shell ended)\n", status
			}
		case <-ctx.Done():
			return printed + "(nothing more came)\n", status
		}
	}
	return printed, status
}

// compare returns what came and what should have, without what varies. The status
// counts where the page shows one.
func (s step) compare(printed, status string) (got, want string) {
	shown := statusLine.FindStringSubmatch(s.shown)
	got, want = alike(printed), alike(shown[1])
	if some := regexp.QuoteMeta(want); strings.Contains(want, omission) {
		some = strings.ReplaceAll(some, regexp.QuoteMeta(omission), "(?:.*\n)*")
		if regexp.MustCompile("^" + some + "$").MatchString(got) {
			got = want
		}
	}
	if shown[2] != "" {
		got, want = got+"[status "+status+"]\n", want+"[status "+shown[2]+"]\n"
	}
	return got, want
}

// ticketsOf replaces the tickets that a page shows, in the commands that follow, by those
// that were printed.
func ticketsOf(shown, printed string) *strings.Replacer {
	var pairs []string
	is := ticketID.FindAllString(printed, -1)
	for i, was := range ticketID.FindAllString(shown, -1) {
		pairs = append(pairs, was, is[i])
	}
	return strings.NewReplacer(pairs...)
}
