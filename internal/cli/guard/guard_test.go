//go:build unix

package guard

import (
	"encoding/binary"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGuardRefusesForeignGroup: started by hand, it must not kill the group it happens to
// be in.
func TestGuardRefusesForeignGroup(t *testing.T) {
	cmd := exec.Command(os.Args[0], Verb)
	out, err := cmd.CombinedOutput() // standard input is empty: for a guard, the end of holdfast
	if err == nil || !strings.Contains(string(out), "leads a process group") {
		t.Errorf("%v, %q", err, out)
	}
}

// TestReportAsTextAndEvent checks what a guard says of each signal.
func TestReportAsTextAndEvent(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 5, time.UTC)
	for _, tt := range []struct {
		s          syscall.Signal
		name, want string
	}{
		{syscall.SIGTERM, "", "holdfast: it stands still"},
		{syscall.SIGTERM, `"a"`, `{"event":"stopping","time":"2026-11-26T12:00:00.000000005Z","name":"a","by":"guard","reason":"it stands still"}`},
		{syscall.SIGKILL, `"a"`, `{"event":"killing","time":"2026-11-26T12:00:00.000000005Z","name":"a","by":"guard","reason":"it stands still"}`},
	} {
		if got := report(tt.s, "it stands still", tt.name, now); got != tt.want {
			t.Errorf("%v, %s: %s", tt.s, tt.name, got)
		}
	}
}

// TestGuardLoopKeepsItsTimes has a clock of its own, which a poll moves on by what it waits.
func TestGuardLoopKeepsItsTimes(t *testing.T) {
	const s = int64(time.Second)
	type frame struct{ term, kill int64 }
	for _, tt := range []struct {
		name   string
		frames []frame
		closed bool // the other end of the pipe
		want   []syscall.Signal
	}{
		{"gone before there was a command", nil, true, nil},
		{"gone in time", []frame{{10 * s, 20 * s}}, true, []syscall.Signal{syscall.SIGKILL}},
		{"done", []frame{{10 * s, 20 * s}, {0, 0}}, true, nil},
		{"too late to be told", []frame{{1, 2}}, false, []syscall.Signal{syscall.SIGKILL}},
		{"told, then killed", []frame{{1, s / 10}}, false, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}},
		{"it was told already", []frame{{0, s / 10}}, false, []syscall.Signal{syscall.SIGKILL}},
		{"old news does not count", []frame{{1, 2}, {10 * s, 20 * s}, {0, 0}}, true, nil},
		{"the newest counts", []frame{{10 * s, 20 * s}, {0, s / 10}}, false, []syscall.Signal{syscall.SIGKILL}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			for _, f := range tt.frames {
				var b [FrameSize]byte
				binary.BigEndian.PutUint64(b[:8], uint64(f.term))
				binary.BigEndian.PutUint64(b[8:], uint64(f.kill))
				if _, err := w.Write(b[:]); err != nil {
					t.Fatal(err)
				}
			}
			if tt.closed {
				w.Close()
			}
			var now atomic.Int64 // moves on by a hundredth of a second each time it is read
			now.Store(5)
			clock := func() time.Duration { return time.Duration(now.Add(s/100) - s/100) }
			var got []syscall.Signal
			err = loop(int(r.Fd()), clock, func(sig syscall.Signal, _ string) { got = append(got, sig) })
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%v, error %v, want %v", got, err, tt.want)
			}
		})
	}
}
