package unanswered

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Requests
		var turns []int
		for range Most {
			if r.Full() {
				t.Fatal("full too early")
			}
			turns = append(turns, r.GiveUp())
		}
		if !r.Full() {
			t.Error("not full")
		}
		time.Sleep(Every)
		if r.Full() {
			t.Error("no request passes after a while")
		}
		if !r.Full() {
			t.Error("more than one request passes")
		}
		r.End(turns[0])
		if r.Full() {
			t.Error("full although a request has ended")
		}
		r.GiveUp()
		r.Answer()
		if r.Full() {
			t.Error("full although the store has answered")
		}
		for _, turn := range turns[1:] {
			r.End(turn)
		}
		for range Most {
			if r.Full() {
				t.Error("requests that were given up before the answer count")
			}
			r.GiveUp()
		}
		if !r.Full() {
			t.Error("requests that ended after the answer count twice")
		}
	})
}

// TestFewPass checks how many requests pass while a store stays silent: many at first,
// one each second in the end.
func TestFewPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Requests
		for range Most {
			r.GiveUp()
		}
		passed := func(d time.Duration) (n int) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if !r.Full() {
					r.GiveUp()
					n++
				}
			}
			return n
		}
		if n := passed(2 * time.Second); n < 16 || n > 26 {
			t.Errorf("%d passed in the first 2 s", n)
		}
		passed(8 * time.Second)
		if n := passed(time.Minute); n < 58 || n > 60 {
			t.Errorf("%d passed in a minute", n)
		}
	})
}
