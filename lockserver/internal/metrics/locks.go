package metrics

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// Locks counts the events of a client's locks, under the names that package
// promholdfast has for them, without its label holdfast_lock_group. It is safe for
// concurrent use; NewLocks makes one.
type Locks struct{ counted *lockmetrics.Aggregate }

// NewLocks returns Locks.
func NewLocks() *Locks {
	return &Locks{lockmetrics.NewAggregate(func(string) string { return "" })}
}

// Observer returns an Observer for holdfast.WithObserver.
func (l *Locks) Observer() *holdfast.Observer {
	return &holdfast.Observer{
		LockStart: func(_ context.Context, e holdfast.LockStartInfo) context.Context {
			l.counted.LockStart(&e)
			return nil
		},
		LockWait: func(_ context.Context, e holdfast.LockWaitInfo) { l.counted.LockWait(&e) },
		LockDone: func(_ context.Context, e holdfast.LockDoneInfo) context.Context {
			l.counted.LockDone(&e)
			return nil
		},
		HoldDone:        func(_ context.Context, e holdfast.HoldDoneInfo) { l.counted.HoldDone(&e) },
		BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) { l.counted.BackgroundError(&e) },
	}
}

// Write writes the series, with the scheme of the store's URL as a label.
func (l *Locks) Write(t *Text, scheme string) {
	store := []string{"holdfast_store_scheme", scheme}
	t.Family("holdfast_lock_count", "gauge", "Calls that wait for a lock, and locks held.")
	l.counted.Each(func(s *lockmetrics.Series) {
		labels := append(store[:2:2], "holdfast_lock_kind", string(s.Kind), "holdfast_lock_state")
		waiting, held := s.Now()
		t.Sample("holdfast_lock_count", float64(waiting), append(labels, "waiting")...)
		t.Sample("holdfast_lock_count", float64(held), append(labels, "held")...)
	})
	t.Family("holdfast_lock_wait_duration_seconds", "histogram", "Duration of calls that take a lock.")
	l.counted.Each(func(s *lockmetrics.Series) {
		for i, result := range lockmetrics.Waits {
			writeHistogram(&s.Wait[i], t, "holdfast_lock_wait_duration_seconds", append(store[:2:2], labelsOf(string(s.Kind), result)...)...)
		}
	})
	t.Family("holdfast_lock_hold_duration_seconds", "histogram", "Duration of holds.")
	l.counted.Each(func(s *lockmetrics.Series) {
		for i, result := range lockmetrics.Holds {
			writeHistogram(&s.Hold[i], t, "holdfast_lock_hold_duration_seconds", append(store[:2:2], labelsOf(string(s.Kind), result)...)...)
		}
	})
	t.Family("holdfast_store_errors_total", "counter", "Requests to the store that failed.")
	errors := l.counted.Errors()
	for _, of := range slices.SortedFunc(maps.Keys(errors), byLabels) {
		t.Sample("holdfast_store_errors_total", float64(errors[of]), append(store[:2:2],
			"holdfast_lock_kind", string(of.Kind), "holdfast_store_operation", of.Operation, "error_type", of.Type)...)
	}
}

func labelsOf(kind string, r lockmetrics.Result) []string {
	return []string{"holdfast_lock_kind", kind, "holdfast_lock_outcome", r.Outcome, "error_type", r.ErrorType}
}

// byLabels orders counters by the values of their labels.
func byLabels(a, b lockmetrics.StoreErrors) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Type, b.Type))
}
