package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// waitsTest is a test of the profile of observability.md.
const waitsTest = `
func hold(t *testing.T, locks *holdfast.Client) *holdfast.Hold {
	h, err := locks.Mutex("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// waitForInvoice is the function that the profile has to name.
func waitForInvoice(locks *holdfast.Client, ctx context.Context) error {
	_, err := locks.Mutex("a").Lock(ctx)
	return err
}

func TestWaits(t *testing.T) {
	store := memlock.NewStore()
	locks, err := holdfast.New(memlock.New(store), holdfast.WithObserver(profileWaits()))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	other, err := holdfast.New(memlock.New(store))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	h := hold(t, other)
	if _, err := locks.Mutex("a").TryLock(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 3 {
		go func() { ended <- waitForInvoice(locks, ctx) }()
	}
	for waits.Count() < 3 {
		time.Sleep(time.Millisecond)
	}
	var text strings.Builder
	if err := waits.WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "waitForInvoice") || !strings.Contains(text.String(), "total 3") {
		t.Error(text.String())
	}
	cancel()
	for range 3 {
		<-ended
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if err := hold(t, locks).Unlock(); err != nil {
		t.Error(err)
	}
	if n := waits.Count(); n != 0 {
		t.Errorf("%d are left in the profile", n)
	}
}
`

// TestProfileOfPageHasTheWaits runs the Observer of observability.md that keeps a
// profile: it has the stack of each call that waits, and of no other.
func TestProfileOfPageHasTheWaits(t *testing.T) {
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	file := "package page\n\nimport (\n"
	for _, path := range []string{"context", "errors", "runtime/pprof", "strings", "testing", "time", repo, repo + "/memlock"} {
		file += "\t\"" + path + "\"\n"
	}
	file += ")\n"
	found := 0
	for _, s := range snippets("observability.md", string(page)) {
		if strings.Contains(s.text, "pprof.NewProfile") {
			file += "\n" + s.text
			found++
		}
	}
	if found != 1 {
		t.Fatalf("the page has %d profiles", found)
	}
	source := filepath.Join(t.TempDir(), "page_test.go")
	if err := os.WriteFile(source, []byte(file+waitsTest), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-v", source)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestWaits ") {
		t.Errorf("%v\n%s", err, out)
	}
}
