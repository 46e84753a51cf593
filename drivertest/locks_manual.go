package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast"
)

var manualCases = []lockCase{
	{name: "renewed by hand", about: "a hold lasts while its user renews it, and ends before the next one begins", run: func(w *lockWorld) {
		a := w.client(holdfast.WithManualRenewal())
		b := w.client()
		h := w.lock(a.Mutex(w.name))
		got := make(chan *holdfast.Hold, 1)
		go func() {
			next, err := b.Mutex(w.name).Lock(w.limit())
			if err != nil {
				w.Error(err)
			}
			got <- next
		}()
		for range 9 {
			time.Sleep(w.h.TTL / 4)
			if err := h.Renew(w.limit()); err != nil {
				w.Fatalf("Renew: %v", err)
			}
		}
		select {
		case <-got:
			w.Fatal("another holds a lock that was renewed")
		default:
		}
		next := <-got
		if h.Err() == nil {
			w.Error("the next one holds, and the hold that was not renewed has not ended")
		}
		if next == nil {
			return
		}
		if w.traits.Fencing && next.Token() <= h.Token() {
			w.Errorf("token %d after %d", next.Token(), h.Token())
		}
		w.unlock(next)
	}},
	{name: "held on behalf of another", about: "waiters and Inspect see whom a hold is for, and by which ticket", run: func(w *lockWorld) {
		a, b := w.client(), w.client()
		by := holdfast.Holder{Host: "app-3", PID: 4711, Via: `lockd "1"`}
		h := w.lock(a.Mutex(w.name, holdfast.WithHolder(by)))
		info, err := b.Inspect(w.limit(), w.name)
		if err != nil || len(info.Holders) != 1 {
			w.Fatalf("Inspect: %+v, %v", info, err)
		}
		got := info.Holders[0]
		if got.ID != h.Ticket() {
			w.Errorf("ticket %q at the store, %q in the hold", got.ID, h.Ticket())
		}
		if got.Holder.Host != by.Host || got.Holder.PID != by.PID || got.Holder.Via != by.Via {
			w.Errorf("holder %+v, want %+v", got.Holder, by)
		}
		places := make(chan holdfast.Waiting, 100)
		done := make(chan *holdfast.Hold, 1)
		go func() {
			next, err := b.Mutex(w.name, holdfast.WithWaiting(func(p holdfast.Waiting) { places <- p })).Lock(w.limit())
			if err != nil {
				w.Error(err)
			}
			done <- next
		}()
		asked := time.Now()
		place := <-places
		for place.Until.IsZero() {
			place = <-places
		}
		if place.Until.Before(asked) || place.Until.After(time.Now().Add(w.h.TTL)) {
			w.Errorf("the claim of the place ends %v after the call, with a TTL of %v", place.Until.Sub(asked), w.h.TTL)
		}
		if place.Ahead > 1 || place.Ahead < -1 {
			w.Errorf("%d places ahead, want 1", place.Ahead)
		}
		w.unlock(h)
		if next := <-done; next != nil {
			w.unlock(next)
		}
	}},
}
