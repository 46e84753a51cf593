package zklock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestLeaveOvertakesAJoinThatWaitsForItsSession sends a Leave while the Join of
// the same ticket waits for a connection. The Join must take no place then.
func TestLeaveOvertakesAJoinThatWaitsForItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := newDriver(nil)
		if err != nil {
			t.Fatal(err)
		}
		d.only = newSession(d, NewTap(nil)) // without a connection: a request would panic
		tk := &driver.Ticket{ID: "00000000-0000-4000-8000-000000000001:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute}
		joined := make(chan driver.Status)
		go func() {
			p, err := d.Join(t.Context(), tk, true)
			if err != nil {
				t.Errorf("Join: %v", err)
			}
			joined <- p
		}()
		synctest.Wait()
		ps, err := d.Leave(t.Context(), []driver.Ref{{Ticket: tk, State: driver.Waiting, JoinPending: true}})
		if err != nil || ps[0].State != driver.Gone {
			t.Errorf("Leave answered %+v, %v", ps, err)
		}
		d.only.connected = true
		close(d.only.known)
		close(d.only.first)
		if p := <-joined; p.State != driver.Gone {
			t.Errorf("Join answered %v after its Leave", p.State)
		}
		d.calls.Wait()
	})
}
