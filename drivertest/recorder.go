package drivertest

import (
	"fmt"
	"runtime"
	"sync"
)

// Record calls f in a goroutine of its own, with a T that records failures
// instead of failing a test, and returns them. Nil means that f passed. Tests of
// the suite run it on drivers that have to fail.
func Record(name string, f func(T)) []string {
	r := &recorder{name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.runCleanups()
		f(r)
	}()
	<-done
	return r.failures
}

type recorder struct {
	name     string
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Name() string        { return r.name }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) runCleanups() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
}
