package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("HOLDFAST_TEST_CHILD") != "" {
		child()
		return
	}
	Main(m)
}

// child starts a server, prints its pid and exits without any clean-up.
func child() {
	p, err := start(Spec{Name: "sleep", Path: "/bin/sleep", Args: []string{"1000"}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func TestServersDieWithTheTests(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_CHILD=1")
	out, _ := cmd.Output()
	var pid int
	if _, err := fmt.Sscan(string(out), &pid); err != nil {
		t.Fatalf("child said %q", out)
	}
	eventually(t, func() bool { return !running(pid) })
}

// running reports whether a process runs; signals still reach a zombie too.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestStartTellsWhyAServerDoesNotStart(t *testing.T) {
	never := func(context.Context) error { return errors.New("not yet") }
	_, err := start(Spec{Name: "x", Path: "/bin/sh", Args: []string{"-c", "echo the disk is full; exit 3"}, Ready: never})
	for _, want := range []string{"the disk is full", "exit status 3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
	if _, err := start(Spec{Name: "x", Path: "/nowhere"}); err == nil {
		t.Error("a program that is not there was started")
	}
}

func TestFindSaysWhatToInstall(t *testing.T) {
	for _, ci := range []string{"", "true"} {
		t.Setenv("CI", ci)
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Find(r, "HOLDFAST_NO_SUCH", "the-package", "no-such-program")
		}()
		<-done
		want := "skip"
		if ci != "" {
			want = "fatal"
		}
		if r.ended != want || !strings.Contains(r.text, "the-package") {
			t.Errorf("CI=%q: %s %q", ci, r.ended, r.text)
		}
	}
}

// recorder is a test that only records how it ended.
type recorder struct {
	testing.TB
	ended, text string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) { r.end("fatal", args) }

func (r *recorder) Skip(args ...any) { r.end("skip", args) }

func (r *recorder) end(how string, args []any) {
	r.ended, r.text = how, fmt.Sprint(args...)
}

func TestRedisComesAndGoes(t *testing.T) {
	s := Redis(t, RedisOptions{Durable: true, Password: "s3cret"})
	s.Do(t, "SET", "k", "v")
	s.Restart(t)
	if got := s.Do(t, "GET", "k"); got != "v" {
		t.Errorf("after a crash: %v", got)
	}
	s.RestartEmpty(t)
	if got := s.Do(t, "GET", "k"); got != nil {
		t.Errorf("after a crash without data: %v", got)
	}
	s.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.exchange(ctx, "PING"); err == nil {
		t.Error("a paused server answered")
	}
	s.Resume(t)
	s.Do(t, "PING")
	if n := s.Calls(t, "ping"); n == 0 {
		t.Error("commandstats counts no PING")
	}
}

func TestRedisTLS(t *testing.T) {
	s := Redis(t, RedisOptions{TLS: true})
	if got := s.Do(t, "PING"); got != "PONG" {
		t.Errorf("answer %v", got)
	}
}

func TestClockSteps(t *testing.T) {
	c := NewClock(t, t.TempDir())
	s := Redis(t, RedisOptions{Env: c.Env()})
	now := func() time.Duration {
		list := s.Do(t, "TIME").([]any)
		sec, _ := strconv.ParseInt(list[0].(string), 10, 64)
		return time.Until(time.Unix(sec, 0)).Round(time.Minute)
	}
	for _, step := range []time.Duration{0, time.Hour, -3 * time.Hour, 2 * time.Hour} {
		c.Step(t, step)
		if got := now(); got != c.offset {
			t.Errorf("the server's clock is %v ahead, want %v", got, c.offset)
		}
	}
}

func TestSharedRedisIsOne(t *testing.T) {
	if a, b := SharedRedis(t), SharedRedis(t); a != b {
		t.Error("two servers")
	}
	list := SharedRedis(t).Do(t, "COMMAND", "COUNT")
	if n, ok := list.(int64); !ok || n == 0 {
		t.Errorf("answer %v", list)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it never came true")
}
