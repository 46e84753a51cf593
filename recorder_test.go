package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// onLoss returns an Observer that calls f for each loss.
func onLoss(f func(*holdfast.LostError)) *holdfast.Observer {
	return &holdfast.Observer{HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) {
		if lost, ok := errors.AsType[*holdfast.LostError](e.Err); ok {
			f(lost)
		}
	}}
}

// onBackgroundError returns an Observer that calls f for each background error.
func onBackgroundError(f func(error)) *holdfast.Observer {
	return &holdfast.Observer{BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) { f(e.Err) }}
}

// recorder records the events of a client, a line each.
type recorder struct {
	mu         sync.Mutex
	lines      []string
	goroutines []string
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	r.goroutines = append(r.goroutines, goroutineID())
}

// take returns the events since the last call, once all have come.
func (r *recorder) take() (lines, goroutines []string) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, goroutines = r.lines, r.goroutines
	r.lines, r.goroutines = nil, nil
	return lines, goroutines
}

// want compares the events since the last call.
func (r *recorder) want(t *testing.T, want ...string) {
	t.Helper()
	if got, _ := r.take(); !slices.Equal(got, want) {
		t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// goroutineID returns the number of the goroutine, as a stack trace shows it.
func goroutineID() string {
	var b [64]byte
	id, _, _ := strings.Cut(strings.TrimPrefix(string(b[:runtime.Stack(b[:], false)]), "goroutine "), " ")
	return id
}

// class returns a short name of an error.
func class(err error) string {
	if se, ok := errors.AsType[*holdfast.StoreError](err); ok {
		return "store: " + se.Op
	}
	for _, e := range []error{holdfast.ErrHeld, holdfast.ErrLost, holdfast.ErrClosed, holdfast.ErrKindMismatch, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return fmt.Sprint(err)
}

// token shows a token as T, and none as -.
func token(n uint64) string {
	if n == 0 {
		return "-"
	}
	return "T"
}

func (r *recorder) observer() *holdfast.Observer {
	show := func(e holdfast.Event) string {
		s := fmt.Sprintf("%s %s %d", e.Name, e.Kind, e.Units)
		if e.Owner != "" {
			s += " of " + e.Owner
		}
		return s
	}
	return &holdfast.Observer{
		LockStart: func(ctx context.Context, e holdfast.LockStartInfo) context.Context {
			r.add("start %s try=%v", show(e.Event), e.Try)
			return nil
		},
		LockWait: func(_ context.Context, e holdfast.LockWaitInfo) {
			r.add("wait %s behind %q, %s", show(e.Event), e.Holder.Note, class(e.Err))
		},
		LockDone: func(_ context.Context, e holdfast.LockDoneInfo) context.Context {
			r.add("done %s %s after %v, contended=%v local=%v, %s", show(e.Event), token(e.Token), e.Waited, e.Contended, e.Local, class(e.Err))
			return nil
		},
		HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) {
			r.add("over %s %s held %v, %s", show(e.Event), token(e.Token), e.Held, class(e.Err))
		},
		BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) {
			r.add("background %s %q, %s", e.Op, e.Name, class(e.Err))
		},
	}
}

// observed returns a recorder and a client whose events it records.
func observed(t *testing.T, d driver.Driver, opts ...holdfast.ClientOption) (*recorder, *holdfast.Client) {
	r := new(recorder)
	return r, client(t, d, append(opts, holdfast.WithObserver(r.observer()))...)
}
