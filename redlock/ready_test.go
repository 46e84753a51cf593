package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestF107_GuardedMajority checks the restart guards of a majority. While they
// refuse, a Lock waits for the time that they return, a Try returns that time,
// and no node is marked as down. A minority that is silent as well changes
// nothing. A store whose majority is silent does not count as not ready.
//
// Covers: F107 on redlock.
func TestF107_GuardedMajority(t *testing.T) {
	for silent := range 3 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(5)
			c, d := w.client(t, ttl)
			for i, s := range w.nodes {
				if i < silent {
					s.dead.Store(true)
				} else {
					s.restart(ttl + time.Duration(i)*time.Second)
				}
			}
			begun := time.Now()
			_, err := d.Join(t.Context(), &driver.Ticket{ID: "a:1", Name: "n", Units: 1, Limit: 1, TTL: ttl}, true)
			// The third guard to end, of the nodes that answer, decides.
			after, ok := driver.IsNotReady(err)
			if want := ttl + time.Duration(silent+2)*time.Second; !ok || after > want || after < want-time.Second {
				t.Errorf("%d of 5 dead, the others guarded: %v, not ready for %v, want %v", silent, err, after, want)
			}
			synctest.Wait() // until each silent node's request has ended
			for i, n := range d.nodes.all {
				if n.down.Load() != (i < silent) {
					t.Errorf("node %d down: %v, of which %d are dead", i+1, n.down.Load(), silent)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*ttl)
			defer cancel()
			h, err := c.Mutex("n").Lock(ctx)
			if err != nil {
				t.Fatalf("%d of 5 dead: Lock after %v: %v", silent, time.Since(begun), err)
			}
			if took := time.Since(begun); took < after || took > 2*after {
				t.Errorf("Lock took %v, and the guards %v", took, after)
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		_, d := w.client(t, ttl)
		w.nodes[0].dead.Store(true)
		w.nodes[1].dead.Store(true)
		w.nodes[2].restart(ttl)
		_, err := d.Join(t.Context(), &driver.Ticket{ID: "a:1", Name: "n", Units: 1, Limit: 1, TTL: ttl}, true)
		if _, ok := driver.IsNotReady(err); ok || driver.ClassOf(err) != driver.Unavailable {
			t.Errorf("two of three dead: %v", err)
		}
	})
}

// TestF124_RenewalFindsGrantWithoutPush checks that where no node can be
// watched, a waiter takes its place and is granted by a renewal.
//
// Covers: F124 on redlock.
func TestF124_RenewalFindsGrantWithoutPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		for _, s := range w.nodes {
			s.deaf.Store(true)
		}
		a, _ := w.client(t, ttl)
		b, _ := w.client(t, ttl)
		ctx, cancel := context.WithTimeout(t.Context(), 10*ttl)
		defer cancel()
		held, err := a.Mutex("n").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2*ttl, func() { _ = held.Unlock() })
		begun := time.Now()
		h, err := b.Mutex("n").Lock(ctx)
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		if took := time.Since(begun); took > 3*ttl {
			t.Errorf("granted %v after the release", took-2*ttl)
		}
		_ = h.Unlock()
	})
}

// TestF117_LateVoteIsGivenBack checks that a vote that is under way when its
// lock is released is given back when the node answers, so that no tombstone
// stays.
//
// Covers: F117 on redlock.
func TestF117_LateVoteIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		c, d := w.client(t, ttl)
		w.nodes[1].slow.Store(int64(5 * time.Millisecond))
		w.nodes[2].slow.Store(int64(15 * time.Millisecond))
		for range 200 {
			h, err := c.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * ttl)
		for i, s := range w.nodes {
			if n := s.unsure.Load(); n > 0 {
				t.Errorf("%d tickets left node %d unsure, which answers all", n, i+1)
			}
		}
		if l, err := d.Inspect(t.Context(), "n"); err != nil || len(l.Tickets) > 0 {
			t.Errorf("the line is %+v, %v", l, err)
		}
	})
}
