package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// host is what package servers takes for a test, so that its servers can be
// used outside of one.
type host struct {
	testing.TB // of which it has what follows; anything else panics
	cleanups   []func()
	dirs       []string
}

// stopped is what a host panics with when a test would end.
type stopped struct{ error }

// withHost runs f and then ends the servers it has started.
func withHost(f func(*host) error) (err error) {
	h := new(host)
	defer func() {
		for _, c := range slices.Backward(h.cleanups) {
			c()
		}
		for _, dir := range h.dirs {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	defer func() {
		switch v := recover().(type) {
		case nil:
		case stopped:
			err = v.error
		default:
			panic(v)
		}
	}()
	return f(h)
}

func (h *host) Helper()          {}
func (h *host) Name() string     { return "bench" }
func (h *host) Failed() bool     { return false }
func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }
func (h *host) Log(...any)       {}

func (h *host) Logf(string, ...any) {}

func (h *host) Fatal(args ...any) { panic(stopped{errors.New(fmt.Sprint(args...))}) }

func (h *host) Fatalf(format string, args ...any) { panic(stopped{fmt.Errorf(format, args...)}) }

func (h *host) Error(args ...any) { h.Fatal(args...) }

func (h *host) Errorf(format string, args ...any) { h.Fatalf(format, args...) }

func (h *host) Skip(args ...any) { h.Fatal(args...) }

func (h *host) Skipf(format string, args ...any) { h.Fatalf(format, args...) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.dirs = append(h.dirs, dir)
	return dir
}

// server looks at the processes of a server.
type server struct {
	pids  []int
	count func() (stop func() (counts, error), err error)
}

// CPU implements bench.Probe. It adds up what the scheduler has counted, in
// nanoseconds, of every thread and of every process below (PostgreSQL has one
// for each connection).
func (s server) CPU() (time.Duration, error) {
	var sum time.Duration
	for _, pid := range s.pids {
		d, err := cpuBelow(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// manyThreads is the number from which on threads are taken to come and go, as
// those of a JVM do: what they used is then in the sum of the process alone,
// which is in hundredths of a second.
const manyThreads = 20

func cpuBelow(pid int) (time.Duration, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	if len(tasks) >= manyThreads {
		return cpuOfProcess(pid)
	}
	var sum time.Duration
	for _, task := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			continue // it has ended
		}
		ns, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		sum += time.Duration(n)
		b, err = os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			continue
		}
		for _, child := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(child); err == nil {
				if d, err := cpuBelow(n); err == nil {
					sum += d
				}
			}
		}
	}
	return sum, nil
}

func cpuOfProcess(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // after the name
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond, nil
}

// Count implements bench.Probe.
func (s server) Count() (func() (counts, error), error) { return s.count() }

// difference makes Count of a server's own counter. What reading it adds is
// seen by reading it twice.
func difference(read func() (counts, error)) func() (func() (counts, error), error) {
	return func() (func() (counts, error), error) {
		first, err := read()
		if err != nil {
			return nil, err
		}
		before, err := read()
		if err != nil {
			return nil, err
		}
		return func() (counts, error) {
			after, err := read()
			own := before.Requests - first.Requests
			return counts{Requests: after.Requests - before.Requests - own, Wakes: after.Wakes - before.Wakes}, err
		}, nil
	}
}
