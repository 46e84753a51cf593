package faults

import (
	"syscall"
	"testing"
	"time"
)

// outcome is what one play of a fault showed. Times are in milliseconds; -1 is
// never, as far as the play went on.
type outcome struct {
	Overlap float64 // from the other's grant to the last write of who had lost the lock
	Stale   int     // how many such writes
	Told    string  `json:",omitempty"` // "in time", "late" or "never"; empty if nothing was lost
	Late    float64 `json:",omitempty"` // from the moment that somebody else could hold, and the program could run
	Took    float64 // from the moment that the lock was to be free to the next grant
	Kept    bool    `json:",omitempty"` // the hold outlived the fault
	Note    string  `json:",omitempty"`
}

const never = -1

func ms(ns int64) float64 { return float64(ns/1e4) / 100 }

// stage is where a play happens: one lock, one store.
type stage struct {
	t      *testing.T
	enter  func() *program // one more program
	forget func()          // the store drops all it knows of the lock
}

// play is a fault, with its numbers in the catalogue of faults.
type play struct {
	name, fault, what string
	exposed           bool // no lock can exclude here; a token can
	run               func(*stage) outcome
}

var plays = []play{
	{"pause", "F26", "the holder is stopped until another holds, and goes on", false, pause},
	{"partition", "F7, F74, F86", "the holder's wire is silent until 3 s after another holds", false, partition},
	{"kill", "F24", "the holder is killed", false, kill},
	{"grant unheard", "F1, F82", "the answer to the request for a free lock is lost, and the connection; the program gives up what it gets", false, unheardGrant},
	{"release unheard", "F2", "the answer to the release is lost, and the connection", false, unheardRelease},
	{"cancel unheard", "F47, F88", "a waiter whose wire is silent gives up; the wire heals 0.3 s later", false, unheardCancel},
	{"waiter killed", "F48", "of two waiters the first is killed, then the holder releases", false, waiterKilled},
	{"connections cut", "F97", "all connections of the holder are closed, once", false, cutOff},
	{"forgotten", "F20, F69", "the store forgets the lock, as after a restart without its data", true, forgotten},
}

// after judges who held before by what it did once another held, and could know.
func after(a *program, granted, able int64) (o outcome) {
	ws := a.writes(granted)
	o.Stale = len(ws)
	if len(ws) > 0 {
		o.Overlap = ms(ws[len(ws)-1] - granted)
	}
	switch e := a.first(told); {
	case e == nil:
		o.Told, o.Late = "never", never
	case e.T <= max(granted, able)+beat.Nanoseconds():
		o.Told = "in time"
	default:
		o.Told, o.Late = "late", ms(e.T-max(granted, able))
	}
	return o
}

// pair has one program hold, and another wait.
func pair(s *stage) (a, b *program) {
	a, b = s.enter(), s.enter()
	a.tell("lock")
	a.must(got, 20*time.Second)
	b.tell("lock")
	b.must(ask, 5*time.Second)
	time.Sleep(500 * time.Millisecond)
	return a, b
}

// next waits for a grant.
func next(b *program, since int64, o *outcome) (granted int64, ok bool) {
	e := b.await(5*ttl, got, failed)
	if e == nil || e.What == failed {
		o.Took = never
		o.Note = "the next one never got the lock"
		if e != nil {
			o.Note += ": " + e.Err
		}
		return 0, false
	}
	o.Took = ms(e.T - since)
	return e.T, true
}

func pause(s *stage) (o outcome) {
	a, b := pair(s)
	since := a.signal(syscall.SIGSTOP)
	granted, ok := next(b, since, &o)
	time.Sleep(500 * time.Millisecond)
	woke := a.signal(syscall.SIGCONT)
	if !ok {
		return o
	}
	time.Sleep(2 * time.Second)
	took := o.Took
	o = after(a, granted, woke)
	o.Took = took
	// From its waking on: before it, nobody could write.
	if ws := a.writes(granted); len(ws) > 0 {
		o.Overlap = ms(ws[len(ws)-1] - woke)
	}
	return o
}

func partition(s *stage) (o outcome) {
	a, b := pair(s)
	a.wire.silence()
	granted, ok := next(b, now(), &o)
	if !ok {
		return o
	}
	a.await(ttl, told)
	time.Sleep(time.Until(time.Now().Add(ttl - time.Duration(now()-granted))))
	a.wire.speak()
	time.Sleep(time.Second)
	took := o.Took
	o = after(a, granted, 0)
	o.Took = took
	return o
}

func kill(s *stage) (o outcome) {
	a, b := pair(s)
	next(b, a.signal(syscall.SIGKILL), &o)
	return o
}

func unheardGrant(s *stage) (o outcome) {
	a, b := s.enter(), s.enter()
	robbed := a.wire.rob()
	a.tell("lock")
	since := int64(0)
	e := a.await(2*ttl, got, failed)
	select {
	case <-robbed:
	default:
		o.Note = "no answer was lost"
	}
	switch {
	case e == nil:
		a.tell("cancel")
		since, o.Note = now(), "it waited for itself"
		if e = a.await(ttl, failed, got); e != nil && e.What == failed {
			break
		}
		o.Note += ", and could not be cancelled"
	case e.What == got:
		a.tell("unlock")
		since = a.must(out, 5*time.Second).T
	default:
		since, o.Note = e.T, "an error"
	}
	b.tell("lock")
	next(b, since, &o)
	return o
}

func unheardRelease(s *stage) (o outcome) {
	a, b := pair(s)
	a.wire.rob()
	a.tell("unlock")
	next(b, a.must(out, 5*time.Second).T, &o)
	if e := a.await(2*ttl, done); e == nil {
		o.Note = "Unlock did not return"
	} else if e.Err != "" {
		o.Note = "Unlock: an error"
	}
	return o
}

func unheardCancel(s *stage) (o outcome) {
	a, b := pair(s)
	c := s.enter()
	b.wire.silence()
	time.Sleep(100 * time.Millisecond)
	b.tell("cancel")
	since := now()
	if e := b.await(300*time.Millisecond, failed); e == nil {
		o.Note = "Lock had not returned 300 ms after it was cancelled"
	} else if e.T-since > 100e6 {
		o.Note = "Lock returned more than 100 ms after it was cancelled"
	}
	time.Sleep(time.Until(time.Now().Add(300*time.Millisecond - time.Duration(now()-since))))
	b.wire.speak()
	time.Sleep(200 * time.Millisecond)
	c.tell("lock")
	c.must(ask, 5*time.Second)
	time.Sleep(200 * time.Millisecond)
	a.tell("unlock")
	next(c, a.must(out, 5*time.Second).T, &o)
	return o
}

func waiterKilled(s *stage) (o outcome) {
	a, b := pair(s)
	c := s.enter()
	c.tell("lock")
	c.must(ask, 5*time.Second)
	time.Sleep(500 * time.Millisecond)
	b.signal(syscall.SIGKILL)
	time.Sleep(100 * time.Millisecond)
	a.tell("unlock")
	next(c, a.must(out, 5*time.Second).T, &o)
	return o
}

func cutOff(s *stage) (o outcome) {
	a, b := pair(s)
	a.wire.cut()
	e := b.await(2*ttl, got)
	if e == nil {
		if o.Kept = a.first(told) == nil && len(a.writes(now()-1e9)) > 0; !o.Kept {
			o.Note = "it stopped, and nobody holds"
		}
		return o
	}
	time.Sleep(ttl)
	return after(a, e.T, 0)
}

func forgotten(s *stage) (o outcome) {
	a, b := pair(s)
	since := now()
	s.forget()
	granted, ok := next(b, since, &o)
	if !ok {
		return o
	}
	a.await(2*ttl, told)
	time.Sleep(200 * time.Millisecond)
	took := o.Took
	o = after(a, granted, 0)
	o.Took = took
	if x, y := a.first(got).Token, b.first(got).Token; x == 0 && y == 0 {
		o.Note = "no token"
	} else if y <= x {
		o.Note = "the token did not grow"
	} else {
		o.Note = "the token grew"
	}
	return o
}
