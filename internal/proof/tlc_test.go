package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestARunWithoutMemoryHasReachedItsBound checks that a run whose heap is full has not ended,
// as one that took all of its processor time, if it has a bound, and has failed otherwise.
func TestARunWithoutMemoryHasReachedItsBound(t *testing.T) {
	bin := t.TempDir()
	java := "#!/bin/sh\necho 'Error: Java ran out of memory.  Running Java with a larger memory allocation pool (heap) may fix this.'\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "java"), []byte(java), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for effort, want := range map[time.Duration]Verdict{0: Failed, time.Minute: Unended} {
		k := &Checker{Modules: t.TempDir(), Limit: time.Minute, Effort: effort}
		o, _, err := k.check(t.Context(), "x", &Config{Name: "X"}, false)
		if err != nil || o.Verdict != want {
			t.Errorf("bound %v: %+v, %v", effort, o, err)
		}
	}
}

// TestARunThatWasStoppedHasReachedItsBound checks that a run is at its bound though the
// kernel, which stopped it there, tells a little less time.
func TestARunThatWasStoppedHasReachedItsBound(t *testing.T) {
	k := &Checker{Effort: time.Minute}
	for cpu, want := range map[time.Duration]bool{time.Minute: true, time.Minute - 300*time.Millisecond: true, time.Second: false} {
		if got := k.isAtBound(cpu, "it printed no verdict"); got != want {
			t.Errorf("after %v: %v", cpu, got)
		}
	}
	if (&Checker{}).isAtBound(time.Hour, "it printed no verdict") {
		t.Error("a run without a bound is at it")
	}
}
