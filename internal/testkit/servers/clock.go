package servers

import (
	_ "embed"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

//go:embed clock/clock.c
var clockSource []byte

// Clock is the wall clock of a server that was started with its Env: the
// machine's clock, ahead by the sum of all Steps. It works for programs that
// read the time from the C library, as Redis does; programs in Go do not.
// Timers and the monotonic clock stay as they are.
type Clock struct {
	shim, file string

	mu     sync.Mutex
	offset time.Duration
}

// NewClock builds, in dir, the library that a server has to load. It needs a C
// compiler.
func NewClock(t testing.TB, dir string) *Clock {
	t.Helper()
	c := &Clock{shim: preload(t, dir, "clock", clockSource), file: filepath.Join(dir, "clock")}
	if err := os.WriteFile(c.file, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// Env returns the environment for [Spec] and for [RedisOptions].
func (c *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + c.shim, "HOLDFAST_CLOCK=" + c.file}
}

// Step sets the clock by d, forward or back.
func (c *Clock) Step(t testing.TB, d time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// One write of one word: the servers, which map the file, see it whole.
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.offset.Microseconds())), 0); err != nil {
		t.Fatal(err)
	}
}
