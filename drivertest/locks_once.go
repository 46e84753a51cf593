package drivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// hourly returns the slots of a job, by the hour.
func hourly(i int) time.Time {
	return time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Hour)
}

// kept is the number of slots that a store remembers for each name.
const kept = 64

var onceCases = []lockCase{
	{name: "once", about: "one client runs a slot, the others hear by whom, and a slot older than those kept counts as done", needs: hasMarks, run: func(w *lockWorld) {
		a, b := w.client(holdfast.WithNote("a"), w.longLease()), w.client(w.longLease())
		var ran atomic.Int32
		count := func(context.Context) error { ran.Add(1); return nil }
		begun, result := make(chan struct{}), make(chan error, 1)
		finish, end := w.gate()
		var did holdfast.Done
		go func() {
			var err error
			did, err = a.Once(w.limit(), w.name, hourly(kept), func(ctx context.Context) error {
				close(begun)
				<-finish
				ctx = context.WithoutCancel(ctx) // a store may be slow
				for i := range kept {
					if _, err := a.Once(ctx, w.name, hourly(i), count); err != nil {
						return err
					}
				}
				return nil
			})
			result <- err
		}()
		select {
		case <-begun:
		case err := <-result:
			w.Fatalf("Once: %v", err)
		}
		if _, err := b.TryOnce(w.limit(), w.name, hourly(kept), count); !errors.Is(err, holdfast.ErrHeld) {
			w.Errorf("TryOnce beside the function: %v", err)
		}
		end()
		heard, err := b.Once(context.Background(), w.name, hourly(kept), count)
		if first := <-result; first != nil { // the other one ran the slot then
			if !errors.Is(first, holdfast.ErrLost) {
				w.Errorf("Once: %v", first)
			}
			return
		}
		if err != nil || heard.Here || heard.By.Note != "a" || heard.Token != did.Token || !heard.At.Equal(did.At) || heard.TooOld {
			w.Errorf("the one that waited hears %+v, %v; it was done as %+v", heard, err, did)
		}
		if last, err := b.LastDone(w.limit(), w.name); err != nil || !last.Slot.Equal(hourly(kept)) || last.By.Note != "a" {
			w.Errorf("LastDone: %+v, %v", last, err)
		}
		if n := ran.Load(); n != kept {
			w.Errorf("%d of %d slots ran", n, kept)
		}
		for i, tooOld := range map[int]bool{-1: true, 0: true, 1: false, kept - 1: false} {
			if done, err := b.Once(w.limit(), w.name, hourly(i), count); err != nil || done.Here || done.TooOld != tooOld {
				w.Errorf("slot %d: %+v, %v", i, done, err)
			}
		}
		if n := ran.Load(); n != kept {
			w.Errorf("%d slots ran again", n-kept)
		}
	}},
	{name: "once inside an owner's hold", about: "holders with one owner hold together, so Once inside of such a hold is refused", needs: ownersAndMarks, run: func(w *lockWorld) {
		for range 2 {
			c := w.client()
			h := w.lock(c.Mutex(w.name, holdfast.WithOwner("job")))
			_, err := c.Once(h.Context(), w.name, hourly(0), func(context.Context) error {
				return errors.New("the slot runs")
			})
			if err == nil || errors.Is(err, holdfast.ErrLost) {
				w.Errorf("Once: %v", err)
			}
			if last, e := c.LastDone(w.limit(), w.name); e != nil || !last.Slot.IsZero() {
				w.Errorf("the slot is done: %+v, %v, after %v", last, e, err)
			}
		}
	}},
	{name: "once on behalf of another", about: "all who do not run a slot hear whom it was done for, and through whom", needs: hasMarks, run: func(w *lockWorld) {
		by := holdfast.Holder{Host: "höst-3", PID: 4711, Via: `lockd "1" — größe`, Note: "n"}
		a := w.client(holdfast.WithHolder(by), holdfast.WithNote(by.Note), w.longLease())
		heard := func(who string, got holdfast.Holder, err error) {
			got.Since = by.Since
			if err != nil || got != by {
				w.Errorf("%s: the slot was done by %+v, %v; want %+v", who, got, err, by)
			}
		}
		nothing := func(context.Context) error { return nil }
		did, err := a.Once(w.limit(), w.name, hourly(0), nothing)
		heard("the one that did it", did.By, err)
		b := w.client(w.longLease())
		done, err := b.Once(w.limit(), w.name, hourly(0), nothing)
		if done.Here {
			w.Error("the slot ran again")
		}
		heard("Once", done.By, err)
		done, err = b.TryOnce(w.limit(), w.name, hourly(0), nothing)
		heard("TryOnce", done.By, err)
		done, err = b.LastDone(w.limit(), w.name)
		heard("LastDone", done.By, err)
	}},
}

func hasMarks(t driver.Traits) bool { return t.Marks }

func ownersAndMarks(t driver.Traits) bool { return t.Marks && t.Owner }
