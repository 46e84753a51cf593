package once

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report counts what happened in a world.
type Report struct {
	Asked      int // calls of Once
	Slots      int // of all jobs
	Runs       int // starts of functions
	Unfinished int // of them, those that a fault ended
	Again      int // slots that were finished more than once, each time after a Hole
	Holes      int // functions that returned, and whose record was not answered in time
	Kills      int
	Pauses     int
	Idle       int // starts that ended without a fault, while the store or the machine was too slow
	Abandoned  int // slots that nobody finished, because every host that asked was killed, or none asked
	Late       int // calls that found their slot done
	Told       int // of them, those that heard by whom and when
	Errors     map[string]int
	Lasted     time.Duration
}

// String returns the counts in a line.
func (r Report) String() string {
	return fmt.Sprintf("%d slots, %d calls in %v: %d runs, %d unfinished by %d kills and %d pauses (%d by slowness), %d finished again after %d holes; %d abandoned by all; %d of %d late calls heard by whom; errors %v",
		r.Slots, r.Asked, r.Lasted.Round(time.Second), r.Runs, r.Unfinished, r.Kills, r.Pauses, r.Idle, r.Again, r.Holes, r.Abandoned, r.Told, r.Late, r.Errors)
}

// Add adds the counts of another world.
func (r *Report) Add(o Report) {
	for _, x := range [][2]*int{
		{&r.Asked, &o.Asked}, {&r.Slots, &o.Slots}, {&r.Runs, &o.Runs}, {&r.Unfinished, &o.Unfinished}, {&r.Again, &o.Again}, {&r.Holes, &o.Holes},
		{&r.Kills, &o.Kills}, {&r.Pauses, &o.Pauses}, {&r.Idle, &o.Idle}, {&r.Abandoned, &o.Abandoned}, {&r.Late, &o.Late}, {&r.Told, &o.Told},
	} {
		*x[0] += *x[1]
	}
	if r.Errors == nil {
		r.Errors = make(map[string]int)
	}
	for k, n := range o.Errors {
		r.Errors[k] += n
	}
	r.Lasted = max(r.Lasted, o.Lasted)
}

// slotKey is one slot of one job.
type slotKey struct {
	name string
	slot int64
}

// judge checks what is recorded. The error lists at most ten breaches.
func (r *record) judge(w *World) (Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := Report{Slots: w.Slots * len(w.Names), Runs: len(r.runs), Errors: r.errs, Lasted: time.Since(r.begun)}
	for _, asks := range r.asks {
		rep.Asked += len(asks)
	}
	for _, f := range r.faults {
		if f.kill {
			rep.Kills++
		} else {
			rep.Pauses++
		}
	}
	runs := make(map[slotKey][]*run)
	for _, x := range r.runs {
		k := slotKey{x.name, x.slot.UnixNano()}
		runs[k] = append(runs[k], x)
	}
	for _, name := range w.Names {
		for i := range w.Slots {
			slot := base.Add(time.Duration(i) * w.Every)
			r.judgeSlotLocked(&rep, name, slot, runs[slotKey{name, slot.UnixNano()}])
		}
	}
	r.judgeStartsLocked(&rep)
	r.judgeLateLocked(&rep, runs)
	for _, s := range r.old {
		r.failLocked("a slot counted as done for its age: %s", s)
	}
	if len(r.wrong) == 0 {
		return rep, nil
	}
	n := len(r.wrong)
	return rep, errors.New(fmt.Sprintf("%d breaches with seed %d:\n", n, w.Seed) + strings.Join(r.wrong[:min(n, 10)], "\n"))
}

// judgeSlotLocked checks that a slot was finished, and again only if the record of
// each finish before was not answered.
func (r *record) judgeSlotLocked(rep *Report, name string, slot time.Time, runs []*run) {
	var finished []*run
	for _, x := range runs {
		if x.finished {
			finished = append(finished, x)
		}
	}
	slices.SortFunc(finished, func(a, b *run) int { return a.ended.Compare(b.ended) })
	for i, x := range finished {
		if !x.answered {
			rep.Holes++
			continue
		}
		if i < len(finished)-1 {
			r.failLocked("%s %v: finished by host %d at %v, which was recorded, and again by host %d",
				name, slot, x.host, x.ended.Sub(r.begun), finished[i+1].host)
		}
	}
	switch {
	case len(finished) == 0:
		r.judgeOpenLocked(rep, slotKey{name, slot.UnixNano()}, len(runs))
	case len(finished) > 1:
		rep.Again++
	}
	slices.SortFunc(runs, func(a, b *run) int { return a.began.Compare(b.began) })
	for i, x := range runs[:max(len(runs)-1, 0)] {
		if x.finished && x.ended.After(runs[i+1].began) {
			r.failLocked("%s %v: host %d and host %d run it at the same time, and both finish", name, slot, x.host, runs[i+1].host)
		}
	}
}

// judgeOpenLocked checks that a slot which nobody finished has no host that asked
// for it and was not killed.
func (r *record) judgeOpenLocked(rep *Report, k slotKey, starts int) {
	asks := r.asks[k]
	var living []*ask
	for _, a := range asks {
		if !r.dead[[2]int{a.host, a.life}] {
			living = append(living, a)
		}
	}
	if len(living) == 0 {
		rep.Abandoned++
		return
	}
	r.failLocked("%s %v: never finished, in %d starts, although %d of %d that asked were not killed, as host %d, whose last error is %v",
		k.name, time.Unix(0, k.slot).UTC(), starts, len(living), len(asks), living[0].host, living[0].last)
}

// judgeStartsLocked checks that each start that was not finished has a fault of its
// own, or that its host or the machine was too slow to keep a lease.
func (r *record) judgeStartsLocked(rep *Report) {
	used := make(map[string]bool)
	for _, x := range r.runs {
		if x.finished {
			continue
		}
		rep.Unfinished++
		found := false
		for i, f := range r.faults {
			key := fmt.Sprint(i, x.name)
			over := f.kill || f.to.IsZero() || !f.to.Before(x.began)
			if f.host == x.host && f.life == x.life && !f.from.After(x.ended) && over && !used[key] {
				used[key], found = true, true
				break
			}
		}
		switch {
		case found:
		case slices.ContainsFunc(r.slow, func(s slowness) bool {
			return (s.host == x.host || s.host < 0) && !s.from.After(x.ended) && s.to.After(x.began)
		}):
			rep.Idle++
		default:
			r.failLocked("%s %v: host %d did not finish it from %v to %v, and no fault is left for that", x.name, x.slot, x.host,
				x.began.Sub(r.begun), x.ended.Sub(r.begun))
		}
	}
}

// judgeLateLocked checks what callers hear of a slot that another has done.
func (r *record) judgeLateLocked(rep *Report, runs map[slotKey][]*run) {
	for _, a := range r.late {
		rep.Late++
		if a.done.Here || !a.done.Slot.Equal(a.slot) {
			r.failLocked("%s %v: told of %+v", a.name, a.slot, a.done)
		}
		if a.done.Token == 0 {
			if n := laterSlots(r.runs, &a); n < known {
				r.failLocked("%s %v: not told by whom it was done, though only %d slots were done since", a.name, a.slot, n)
			}
			continue
		}
		rep.Told++
		told := slices.ContainsFunc(runs[slotKey{a.name, a.slot.UnixNano()}], func(x *run) bool {
			return x.finished && a.done.By.Note == fmt.Sprint("host ", x.host) && a.done.At.Sub(x.ended).Abs() < 2*time.Second
		})
		if !told {
			r.failLocked("%s %v: told that it was done by %v at %v", a.name, a.slot, a.done.By, a.done.At)
		}
	}
}

// known is the number of slots, of those recorded last, of which a host hears by whom
// they were done.
const known = 24

// laterSlots returns how many other slots of the job were finished after the slot of
// an answer, and before the answer.
func laterSlots(runs []*run, a *answer) int {
	var done time.Time // when it was finished first
	for _, x := range runs {
		if x.finished && x.name == a.name && x.slot.Equal(a.slot) && (done.IsZero() || x.ended.Before(done)) {
			done = x.ended
		}
	}
	later := map[int64]bool{}
	for _, x := range runs {
		if x.finished && x.name == a.name && !x.slot.Equal(a.slot) && x.ended.After(done) && !x.ended.After(a.at) {
			later[x.slot.UnixNano()] = true
		}
	}
	return len(later)
}
