//go:build unix

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var terraform = flag.String("terraform", "", "run the sessions with Terraform by the program at this path, and test what their page says of it")

const (
	terraformPage = "../../docs/recipes.md"
	// terraformRecord has the sessions with which make terraform passed last.
	terraformRecord = "testdata/terraform.txt"
)

// terraformSessions returns the sessions of the page that have Terraform, and their text
// with the comments that readers do not see.
func terraformSessions(t *testing.T) (sessions []session, text string) {
	t.Helper()
	for _, s := range sessionsOf(t, terraformPage) {
		if s.has("terraform ") {
			sessions, text = append(sessions, s), text+s.text+"\n"
		}
	}
	return sessions, text
}

// TestTerraformSessionsPassed checks that the sessions of the page with Terraform, which
// CI does not have, are those with which the lane passed.
func TestTerraformSessionsPassed(t *testing.T) {
	sessions, text := terraformSessions(t)
	if len(sessions) == 0 {
		t.Fatal("the page has no session with Terraform")
	}
	passed, err := os.ReadFile(terraformRecord)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(passed) {
		t.Errorf("a session with Terraform in %s differs from what was printed: run make terraform, which writes %s when all sessions pass",
			terraformPage, terraformRecord)
	}
}

// TestTerraform is the lane: it runs the sessions of the page with Terraform, records
// them, and tests what the page says of Terraform.
func TestTerraform(t *testing.T) {
	if *terraform == "" {
		return // make terraform
	}
	program := filepath.Join(t.TempDir(), "terraform") // its name in the sessions
	if err := os.Symlink(*terraform, program); err != nil {
		t.Fatal(err)
	}
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "TF_") {
			t.Setenv(name, "") // for the end of the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("CHECKPOINT_DISABLE", "1") // it asks its maker for newer versions
	if out, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	binary := buildHoldfast(t)

	sessions, text := terraformSessions(t)
	for _, s := range sessions {
		t.Run(s.name, func(t *testing.T) { s.run(t, binary, program) })
	}
	if !t.Failed() {
		if err := os.WriteFile(terraformRecord, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]func(*testing.T, *site){
		"runs exclude each other":       testTerraformExclusion,
		"the status passes":             testTerraformStatus,
		"a lock in doubt":               testTerraformInDoubt,
		"a run that was killed":         testTerraformKilled,
		"an interrupt at the terminal":  testTerraformInterrupt,
		"a Terraform that was killed":   testTerraformProgramKilled,
		"a lock that an operator takes": testTerraformBroken,
	} {
		t.Run(name, func(t *testing.T) {
			redis := servers.Redis(t, servers.RedisOptions{})
			test(t, &site{holdfast: binary, terraform: program, folder: t.TempDir(), redis: redis})
		})
	}
}

// site is a folder with a Terraform configuration, and the lock of its state.
type site struct {
	holdfast, terraform, folder string
	redis                       *servers.RedisServer
}

// write makes the configuration: one resource, which each apply replaces by a command.
func (s *site) write(t *testing.T, command string) {
	t.Helper()
	configuration := fmt.Sprintf(`resource "terraform_data" "site" {
  triggers_replace = timestamp()
  provisioner "local-exec" {
    command = %q
  }
}
`, command)
	if err := os.WriteFile(filepath.Join(s.folder, "main.tf"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
}

// exclusive is a command that fails beside another one of it.
func exclusive(command string) string { return "flock -n busy sh -c '" + command + "' || exit 9" }

// command returns a command in the site's folder, which is killed after two minutes.
func (s *site) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), "PATH="+pathOf([]string{s.holdfast, s.terraform}), "HOLDFAST_STORE=redis://"+s.redis.Addr())
	return cmd
}

// apply returns the page's command with more flags of run.
func (s *site) apply(t *testing.T, flags ...string) *exec.Cmd {
	t.Helper()
	return s.command(t, s.holdfast, append(append([]string{"run"}, flags...), "infra", "--", "terraform", "apply", "-auto-approve", "-lock=false")...)
}

// running is a command that runs, and what it has printed.
type running struct {
	*exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

// printed returns what was printed, without colours.
func (r *running) printed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return colour.ReplaceAllString(r.text.String(), "")
}

func start(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{Cmd: cmd}
	cmd.Stdout, cmd.Stderr = r, r
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// await waits until text was printed.
func (r *running) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(r.printed(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = r.Process.Kill()
			t.Fatalf("%q was not printed, but\n%s", text, r.printed())
		}
	}
}

// end waits for the end, and checks the status and some words of the output.
func (r *running) end(t *testing.T, status int, words ...string) {
	t.Helper()
	_ = r.Wait()
	if got := r.ProcessState.ExitCode(); got != status {
		t.Errorf("status %d, want %d:\n%s", got, status, r.printed())
	}
	for _, word := range words {
		if !strings.Contains(r.printed(), word) {
			t.Errorf("no %q in\n%s", word, r.printed())
		}
	}
}

// state returns what Terraform shows of the state.
func (s *site) state(t *testing.T) string {
	t.Helper()
	r := start(t, s.command(t, s.terraform, "show"))
	r.end(t, 0)
	return r.printed()
}

// id returns the id that an apply printed behind a text.
func (r *running) id(t *testing.T, behind string) string {
	t.Helper()
	m := regexp.MustCompile(regexp.QuoteMeta(behind) + `.*\[id=([^]]+)\]`).FindStringSubmatch(r.printed())
	if m == nil {
		t.Fatalf("no id behind %q in\n%s", behind, r.printed())
	}
	return m[1]
}

// testTerraformExclusion checks that no two of three runs apply at once, and that each reads the
// state that the one before it wrote.
func testTerraformExclusion(t *testing.T, s *site) {
	s.write(t, exclusive("sleep 1"))
	var runs []*running
	for range 3 {
		runs = append(runs, start(t, s.apply(t)))
	}
	created, refreshed := map[string]bool{}, map[string]bool{}
	for _, r := range runs {
		r.end(t, 0, "Apply complete! Resources: 1 added, 0 changed,")
		created[r.id(t, "Creation complete")] = true
		if strings.Contains(r.printed(), "Refreshing state") {
			refreshed[r.id(t, "Refreshing state")] = true
		}
	}
	last := 0
	for id := range created {
		if !refreshed[id] {
			last++
		}
	}
	if len(created) != 3 || len(refreshed) != 2 || last != 1 {
		t.Errorf("the runs created %v, and read %v", created, refreshed)
	}
}

// testTerraformStatus checks the statuses of a plan with changes and of a failed apply,
// and that the lock is free behind both.
func testTerraformStatus(t *testing.T, s *site) {
	s.write(t, "exit 3")
	start(t, s.command(t, s.holdfast, "run", "infra", "--", "terraform", "plan", "-detailed-exitcode", "-lock=false")).end(t, 2, "Plan: 1 to add")
	start(t, s.apply(t)).end(t, 1, "exit status 3")
	start(t, s.command(t, s.holdfast, "run", "--no-wait", "infra", "--", "terraform", "version")).end(t, 0, "Terraform v")
}

// testTerraformInDoubt checks that Terraform gets SIGTERM while the lease of a lock in
// doubt has --grace to go, writes its state and ends.
func testTerraformInDoubt(t *testing.T, s *site) {
	s.write(t, "sleep 60")
	r := start(t, s.apply(t, "--ttl", "8s", "--grace", "3s"))
	r.await(t, "Executing")
	silent := time.Now()
	s.redis.Kill()
	r.await(t, "Interrupt received")
	if told := time.Since(silent); told > 6*time.Second {
		t.Errorf("told after %v of a lease of 8 s with 3 s of grace", told)
	}
	r.end(t, 74, "signal: terminated")
	if over := time.Since(silent); over > 8*time.Second {
		t.Errorf("Terraform ran for %v of a lease of 8 s", over)
	}
	if state := s.state(t); !strings.Contains(state, "(tainted)") {
		t.Errorf("the state is\n%s", state)
	}
}

// testTerraformKilled checks that Terraform does not outlive the run that started it, and
// that another run takes the lock when the lease is over.
func testTerraformKilled(t *testing.T, s *site) {
	s.write(t, exclusive("touch begun; sleep 60"))
	first := start(t, s.apply(t, "--ttl", "3s"))
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(s.folder, "begun")); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the command has not begun:\n%s", first.printed())
		}
	}
	s.write(t, exclusive("true"))
	second := start(t, s.apply(t, "--ttl", "3s"))
	second.await(t, "waiting for infra")
	killed := time.Now()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.end(t, -1)
	second.end(t, 0, "Apply complete! Resources: 1 added, 0 changed,")
	took := time.Since(killed)
	t.Logf("the second run applied %v later", took)
	if took > 10*time.Second {
		t.Errorf("the second run took %v behind one with a lease of 3 s", took)
	}
}

// testTerraformProgramKilled checks that the lock is free at once when Terraform was
// killed, not run.
func testTerraformProgramKilled(t *testing.T, s *site) {
	s.write(t, "kill -9 $PPID")
	r := start(t, s.apply(t))
	r.end(t, 128+int(syscall.SIGKILL))
	start(t, s.command(t, s.holdfast, "run", "--no-wait", "infra", "--", "true")).end(t, 0)
}

// testTerraformInterrupt checks that an interrupt at the terminal reaches Terraform once:
// two make it end without its state.
func testTerraformInterrupt(t *testing.T, s *site) {
	s.write(t, "sleep 60")
	cmd := s.apply(t)
	screen, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	r := &running{Cmd: cmd}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for b := make([]byte, 4096); ; {
			n, err := screen.Read(b)
			_, _ = r.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	r.await(t, "Executing")
	if _, err := screen.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	r.await(t, "Interrupt received")
	<-read
	r.end(t, 1, "Gracefully shutting down")
	if strings.Contains(r.printed(), "Two interrupts") {
		t.Errorf("it came twice:\n%s", r.printed())
	}
	if state := s.state(t); !strings.Contains(state, "(tainted)") {
		t.Errorf("the state is\n%s", state)
	}
}

// testTerraformBroken checks that a break leaves Terraform no time to write its state.
func testTerraformBroken(t *testing.T, s *site) {
	s.write(t, "sleep 60")
	r := start(t, s.apply(t))
	r.await(t, "Executing")
	start(t, s.command(t, s.holdfast, "break", "--yes", "infra")).end(t, 0)
	r.end(t, 74, "killing the command")
	if state := s.state(t); !strings.Contains(state, "No state") {
		t.Errorf("the state is\n%s", state)
	}
}
