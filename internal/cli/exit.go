//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

// The exit statuses of holdfast itself. Programs mostly use small numbers, so
// these follow sysexits.h, and env and timeout for a command that cannot run.
const (
	exitOK          = 0
	exitNo          = 1   // the answer is no: doctor found a problem, break did not break
	exitUsage       = 64  // EX_USAGE: the command line, or a name, URL or option in it
	exitUnavailable = 69  // EX_UNAVAILABLE: the store cannot be reached, or refuses
	exitInternal    = 70  // EX_SOFTWARE
	exitLost        = 74  // EX_IOERR: the lock did not last as long as the command
	exitNotAcquired = 75  // EX_TEMPFAIL: others hold it; trying again later may help
	exitMismatch    = 78  // EX_CONFIG: the name is in use as another kind of lock
	exitNotRunnable = 126 // the command was found and cannot be run
	exitNotFound    = 127 // the command was not found
	exitSignal      = 128 // plus the number of the signal that ended the command, or the wait for the lock
)

// failure is an error with the exit status of the process. Without an error in
// it, nothing more is printed.
type failure struct {
	status int
	err    error
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.status)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

func fail(status int, format string, args ...any) error {
	return &failure{status, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return fail(exitUsage, format, args...) }

// exitWith returns the error of a verb that has already printed everything.
func exitWith(status int) error { return &failure{status, nil} }

// reasons are the names of the statuses in JSON.
var reasons = map[int]string{
	exitNo:          "no",
	exitUsage:       "usage",
	exitUnavailable: "store unavailable",
	exitInternal:    "internal error",
	exitLost:        "lock lost",
	exitNotAcquired: "not acquired",
	exitMismatch:    "kind mismatch",
	exitNotRunnable: "command not runnable",
	exitNotFound:    "command not found",
}

// reasonOf returns the name of any status.
func reasonOf(status int) string {
	if status > exitSignal {
		return "signal"
	}
	return reasons[status]
}

// statusOf returns the exit status that an error stands for.
func statusOf(err error) int {
	var f *failure
	var s *signalError
	var store *holdfast.StoreError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return f.status
	case errors.As(err, &s):
		return exitSignal + int(s.signal)
	case errors.Is(err, holdfast.ErrLost):
		return exitLost
	case errors.Is(err, holdfast.ErrHeld), errors.As(err, new(*holdfast.WaitError)):
		return exitNotAcquired
	case errors.Is(err, holdfast.ErrKindMismatch), errors.Is(err, holdfast.ErrUpgrade):
		return exitMismatch
	case errors.Is(err, holdfast.ErrNoTicket):
		return exitNo
	case errors.As(err, &store) && !errors.Is(err, anylock.ErrConfig):
		return exitUnavailable
	case errors.Is(err, holdfast.ErrClosed):
		return exitInternal
	}
	// All other errors are values that the library refused before any request.
	return exitUsage
}

// report writes the error of a verb, as one line.
func (a *app) report(err error) {
	if f := (*failure)(nil); errors.As(err, &f) && f.err == nil {
		return // already printed
	}
	status := statusOf(err)
	text := message(err)
	if a.console.json {
		a.console.errJSON(failureJSON{"holdfast", status, reasonOf(status), text})
		return
	}
	hint := ""
	if status == exitUsage {
		hint = fmt.Sprintf(" (see '%s --help')", a.path)
	}
	fmt.Fprintf(a.console.stderr(), "holdfast: %s%s\n", text, hint)
}

// failureJSON has fields in common with the last event of a run.
type failureJSON struct {
	By     string `json:"by"`
	Status int    `json:"status"`
	Reason string `json:"reason"`
	Error  string `json:"error"`
}

// message returns the text of an error in one line that is safe for a terminal,
// without the program's or package's name with which most errors begin.
func message(err error) string {
	if store := (*holdfast.StoreError)(nil); errors.Is(err, anylock.ErrConfig) && errors.As(err, &store) {
		err = store.Err // nothing was opened yet
	}
	text := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	for _, prefix := range []string{"holdfast: ", "anylock: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return printable(text)
}

// signalError is the cause of a wait that a signal ended.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return "ended by signal: " + e.signal.String() }

// notRun returns the error of a command that cannot be run.
func notRun(name string, err error) error {
	status := exitNotRunnable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		status = exitNotFound
	}
	var path *fs.PathError
	var look *exec.Error
	switch {
	case errors.As(err, &look):
		err = look.Err
	case errors.As(err, &path):
		err = path.Err
	}
	return fail(status, "cannot run %s: %w", printable(name), err)
}
