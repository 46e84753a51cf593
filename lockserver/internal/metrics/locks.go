package metrics

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// Locks counts the events of a client's locks, under the names that package
// promholdfast has for them, without its label holdfast_lock_group. It is safe for
// concurrent use; NewLocks makes one.
type Locks struct {
	kinds  *lockmetrics.Groups[kindSeries]
	errors *Counters
}

// kindSeries are the series of one kind of lock.
type kindSeries struct {
	kind          string
	waiting, held atomic.Int64
	wait          [len(lockmetrics.Waits)]*Histogram
	hold          [len(lockmetrics.Holds)]*Histogram
}

// NewLocks returns Locks.
func NewLocks() *Locks {
	return &Locks{
		kinds: lockmetrics.NewGroups(func(string) string { return "" }, func(_ string, kind holdfast.Kind) *kindSeries {
			s := &kindSeries{kind: string(kind)}
			for i := range s.wait {
				s.wait[i] = NewHistogram()
			}
			for i := range s.hold {
				s.hold[i] = NewHistogram()
			}
			return s
		}),
		errors: NewCounters("holdfast_lock_kind", "holdfast_store_operation", "error_type"),
	}
}

// Observer returns an Observer for holdfast.WithObserver.
func (l *Locks) Observer() *holdfast.Observer {
	return &holdfast.Observer{
		LockStart: func(_ context.Context, e holdfast.LockStartInfo) context.Context {
			l.kinds.Of(&e.Event).waiting.Add(1)
			return nil
		},
		LockWait: func(_ context.Context, e holdfast.LockWaitInfo) {
			l.storeError(string(e.Kind), "acquire", e.Err)
		},
		LockDone: func(_ context.Context, e holdfast.LockDoneInfo) context.Context {
			s := l.kinds.Of(&e.Event)
			s.waiting.Add(-1)
			s.wait[lockmetrics.WaitResult(e.Err)].Observe(e.Waited)
			if e.Err == nil {
				s.held.Add(1)
			}
			l.storeError(s.kind, "acquire", e.Err)
			return nil
		},
		HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) {
			s := l.kinds.Of(&e.Event)
			s.held.Add(-1)
			s.hold[lockmetrics.HoldResult(e.Err)].Observe(e.Held)
			l.storeError(s.kind, "release", e.Err)
		},
		BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) {
			l.storeError("", e.Op, e.Err)
		},
	}
}

// storeError counts err, if it is the store's.
func (l *Locks) storeError(kind, operation string, err error) {
	if is := lockmetrics.ErrorType(err); is != "" {
		l.errors.Add(kind, operation, is)
	}
}

// Write writes the series, with the scheme of the store's URL as a label.
func (l *Locks) Write(t *Text, scheme string) {
	store := []string{"holdfast_store_scheme", scheme}
	t.Family("holdfast_lock_count", "gauge", "Calls that wait for a lock, and locks held.")
	l.kinds.Each(func(s *kindSeries) {
		labels := append(store[:2:2], "holdfast_lock_kind", s.kind, "holdfast_lock_state")
		t.Sample("holdfast_lock_count", float64(s.waiting.Load()), append(labels, "waiting")...)
		t.Sample("holdfast_lock_count", float64(s.held.Load()), append(labels, "held")...)
	})
	t.Family("holdfast_lock_wait_duration_seconds", "histogram", "Duration of calls that take a lock.")
	l.kinds.Each(func(s *kindSeries) {
		for i, result := range lockmetrics.Waits {
			s.wait[i].Write(t, "holdfast_lock_wait_duration_seconds", append(store[:2:2], labelsOf(s.kind, result)...)...)
		}
	})
	t.Family("holdfast_lock_hold_duration_seconds", "histogram", "Duration of holds.")
	l.kinds.Each(func(s *kindSeries) {
		for i, result := range lockmetrics.Holds {
			s.hold[i].Write(t, "holdfast_lock_hold_duration_seconds", append(store[:2:2], labelsOf(s.kind, result)...)...)
		}
	})
	l.errors.Write(t, "holdfast_store_errors_total", "Requests to the store that failed.", store...)
}

func labelsOf(kind string, r lockmetrics.Result) []string {
	return []string{"holdfast_lock_kind", kind, "holdfast_lock_outcome", r.Outcome, "error_type", r.ErrorType}
}
