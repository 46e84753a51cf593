package lockmetrics

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
)

// Aggregate counts the events of locks without a client of metrics. It is safe for
// concurrent use; NewAggregate makes one. The events of a lock that succeeds allocate
// nothing.
type Aggregate struct {
	groups *Groups[Series]

	mu     sync.Mutex
	errors map[StoreErrors]uint64
}

// Series has the numbers of one group and kind. The indexes of Wait and Hold are those
// of Waits and Holds.
type Series struct {
	Group  string
	Kind   holdfast.Kind
	starts atomic.Uint64
	Wait   [len(Waits)]Histogram
	Hold   [len(Holds)]Histogram
}

// Now returns the number of calls that have not returned and of holds that have not
// ended. They are differences of what was counted, so an event changes no gauge.
func (s *Series) Now() (waiting, held int64) {
	return Unfinished(&s.starts, s.Wait[:], s.Hold[:], (*Histogram).Count)
}

// Unfinished returns the number of calls that have begun and not returned, and of holds
// that were acquired and have not ended. count returns the number of durations of a
// histogram. Ends are read before what they end, so no difference is negative.
func Unfinished[H any](starts *atomic.Uint64, waits, holds []H, count func(*H) uint64) (waiting, held int64) {
	for i := range holds {
		held -= int64(count(&holds[i]))
	}
	for i := range waits {
		n := int64(count(&waits[i]))
		waiting -= n
		if i == waitAcquired {
			held += n
		}
	}
	return waiting + int64(starts.Load()), held
}

// StoreErrors are the labels of a counter of the store's errors. Group and Kind are
// empty for requests about several locks.
type StoreErrors struct {
	Group     string
	Kind      holdfast.Kind
	Operation string
	Type      string
}

// NewAggregate returns an Aggregate. groupOf is that of NewGroups.
func NewAggregate(groupOf func(name string) string) *Aggregate {
	return &Aggregate{
		groups: NewGroups(groupOf, func(group string, kind holdfast.Kind) *Series { return &Series{Group: group, Kind: kind} }),
		errors: map[StoreErrors]uint64{},
	}
}

// LockStart counts a call that begins, and returns the series of its lock.
func (a *Aggregate) LockStart(e *holdfast.LockStartInfo) *Series {
	s := a.groups.Of(&e.Event)
	s.starts.Add(1)
	return s
}

// LockWait counts the error of a store that cannot give a place.
func (a *Aggregate) LockWait(e *holdfast.LockWaitInfo) {
	if e.Err != nil {
		a.storeError(a.groups.Of(&e.Event), "acquire", e.Err)
	}
}

// LockDone counts a call that returns, and returns the series of its lock and the index
// of its result.
func (a *Aggregate) LockDone(e *holdfast.LockDoneInfo) (*Series, int) {
	s := a.groups.Of(&e.Event)
	i := WaitResult(e.Err)
	s.Wait[i].Observe(e.Waited)
	if e.Err != nil {
		a.storeError(s, "acquire", e.Err)
	}
	return s, i
}

// HoldDone counts a hold that has ended, and returns the index of its result.
func (a *Aggregate) HoldDone(e *holdfast.HoldDoneInfo) int {
	s := a.groups.Of(&e.Event)
	i := HoldResult(e.Err)
	s.Hold[i].Observe(e.Held)
	if e.Err != nil {
		a.storeError(s, "release", e.Err)
	}
	return i
}

// BackgroundError counts an error of the store in the background.
func (a *Aggregate) BackgroundError(e *holdfast.BackgroundErrorInfo) {
	a.storeError(&Series{}, e.Op, e.Err)
}

// storeError counts err, if it is the store's.
func (a *Aggregate) storeError(s *Series, operation string, err error) {
	kind := ErrorType(err)
	if kind == "" {
		return
	}
	a.mu.Lock()
	a.errors[StoreErrors{s.Group, s.Kind, operation, kind}]++
	a.mu.Unlock()
}

// Each calls f for the series of each group and kind.
func (a *Aggregate) Each(f func(*Series)) { a.groups.Each(f) }

// Errors returns the counters of the store's errors.
func (a *Aggregate) Errors() map[StoreErrors]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.errors)
}
