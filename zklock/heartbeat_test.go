package zklock

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestF14_Promise checks that an answer counts from when its request was sent,
// but only once a later request on the same connection has shown that the
// leader was reached.
func TestF14_Promise(t *testing.T) {
	t.Parallel()
	tick := 100 * time.Millisecond
	d, err := newDriver(nil)
	if err != nil {
		t.Fatal(err)
	}
	d.tick = tick
	s := newSession(d, NewTap(nil))
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s.connected, s.timeout, s.confirmed = true, time.Second, at(0)
	check := func(what string, now, want int) {
		t.Helper()
		if got := s.promise(at(now)); got != time.Duration(want)*time.Millisecond {
			t.Errorf("%s: the promise is %v, want %d ms", what, got, want)
		}
	}
	beat := func(sent, answered int) { s.confirmSyncs(answeredSync{at(sent), at(answered), s.epoch}) }

	check("from the beginning", 0, 1000)
	beat(100, 110)
	check("an answer alone proves nothing", 110, 890)
	beat(150, 160)
	check("nor does another one at once", 160, 840)
	beat(180, 190)
	check("half a tick later it does", 190, 910) // counts from 100
	beat(200, 400)
	check("the answer's delay does not count", 400, 700)
	beat(470, 480)
	check("both", 480, 720) // counts from 200

	s.onStateLocked(zk.StateDisconnected)
	s.connected = true
	beat(600, 610)
	check("another connection confirms nothing of the old one", 610, 590)
	stale := answeredSync{at(650), at(700), s.epoch - 1}
	s.confirmSyncs(stale)
	beat(800, 810)
	check("the new one confirms its own", 810, 790) // counts from 600
}
