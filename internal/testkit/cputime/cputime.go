//go:build linux

// Package cputime measures the processor time of short functions, for tests of what an
// operation may cost on a machine that does much else.
package cputime

import (
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	rounds = 200
	least  = time.Millisecond // of a round
)

// Of returns the processor time of one call of each function: the least of many rounds,
// in which the functions take turns. Whatever else the machine does only adds to a round.
func Of(functions ...func()) []time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls := make([]int, len(functions))
	best := make([]time.Duration, len(functions))
	for i, f := range functions {
		for calls[i] = 1; timeOf(f, calls[i]) < least; calls[i] *= 2 {
		}
	}
	for range rounds {
		for i, f := range functions {
			if took := timeOf(f, calls[i]) / time.Duration(calls[i]); best[i] == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	return best
}

// tries bounds how often Within measures.
const tries = 5

// Within measures the functions until their times are good, and reports whether they
// were. A machine that does much else makes some functions slower than others at times:
// each time is the least of all tries.
func Within(good func(took []time.Duration) bool, functions ...func()) (took []time.Duration, ok bool) {
	for range tries {
		for i, t := range Of(functions...) {
			if len(took) < len(functions) {
				took = append(took, t)
			}
			took[i] = min(took[i], t)
		}
		if good(took) {
			return took, true
		}
	}
	return took, false
}

// timeOf returns the processor time of some calls of f.
func timeOf(f func(), calls int) time.Duration {
	before := threadTime()
	for range calls {
		f()
	}
	return threadTime() - before
}

// threadClock is CLOCK_THREAD_CPUTIME_ID. The times of Getrusage have ticks of some
// milliseconds.
const threadClock = 3

// threadTime returns the processor time of the calling thread.
func threadTime() time.Duration {
	var at syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&at)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(at.Nano())
}

// usual is the time of Reference on the machine of the measurements in docs.
const usual = 204 * time.Nanosecond

// Slower returns how much slower than the machine of the measurements in docs this one
// is, at least 1, from the processor time of a call of Reference.
func Slower(ofReference time.Duration) float64 {
	return max(1, float64(ofReference)/float64(usual))
}

// Reference returns a function that does what a lock does most: it takes mutexes and
// reads a clock.
func Reference() func() {
	var mu sync.Mutex
	n := 0
	return func() {
		for range 4 {
			mu.Lock()
			n += int(time.Now().UnixNano() & 1)
			mu.Unlock()
		}
	}
}
