package handover

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// varying are the parts of lines that differ from one scene to the next.
var varying = regexp.MustCompile(`token \d+|for \d+s|pid \d+ on \S+`)

// lines returns what a terminal printed, without what varies.
func lines(t *Terminal) (all []string) {
	for _, l := range t.Screen() {
		all = append(all, varying.ReplaceAllString(l.Text, "…"))
	}
	return all
}

// TestSceneIsAsRecorded plays the scene of docs/handover.json with a shorter lease,
// and checks that the terminals print what they printed then.
func TestSceneIsAsRecorded(t *testing.T) {
	data, err := os.ReadFile("../../../docs/handover.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", folder+"/holdfast", "../../../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got, err := Scene{
		Folder: folder, URL: "sqlite:" + filepath.Join(t.TempDir(), "locks.db"), Store: "SQLite", TTL: 3 * time.Second,
		Pause: 100 * time.Millisecond, Work: [2]time.Duration{time.Minute, 50 * time.Millisecond},
	}.Play(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		now, then := &got.Terminals[i], &want.Terminals[i]
		has, had := lines(now), lines(then)
		if i == 0 { // two processes tell of the kill, in any order
			slices.Sort(has)
			slices.Sort(had)
		}
		if !slices.Equal(has, had) || now.Typed != strings.Replace(then.Typed, "10s", "3s", 1) || now.Status != then.Status {
			t.Errorf("%q prints %q with status %d; %q printed %q with status %d", now.Typed, has, now.Status, then.Typed, had, then.Status)
		}
	}
}
