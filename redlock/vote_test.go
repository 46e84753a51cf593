package redlock

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestPushesBeforeTheAnswer pushes a state of a node's ticket while the Join of
// that ticket is under way: the answer, which is older, must not undo it.
func TestPushesBeforeTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		push, answer driver.Status
		want         driver.State
		counts       bool
	}{
		{driver.Status{State: driver.Held, Token: 7}, driver.Status{State: driver.Waiting}, driver.Held, true},
		{driver.Status{State: driver.Held, Token: 7}, driver.Status{State: driver.Held, Token: 7}, driver.Held, true},
		{driver.Status{State: driver.Gone}, driver.Status{State: driver.Held, Token: 7}, driver.Gone, false},
		{driver.Status{State: driver.Gone}, driver.Status{State: driver.Waiting}, driver.Gone, false},
	} {
		d := &Driver{nodes: &nodeSet{quorum: 2, all: make([]*node, 3)}}
		d.tokens.start, d.tokens.nodes = time.Now(), make([]offsets, 3)
		n := &node{of: d.nodes}
		e := d.enter(&driver.Ticket{ID: "00000000-0000-4000-8000-000000000001:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute})
		e.home = n.at
		v, sent := &e.votes[n.at], time.Now()
		v.t, v.busy = e.newTicketLocked(e.t.TTL, 0), true
		d.onPush(n, v.t.ID, tt.push)
		tt.answer.Lease = time.Minute
		e.onVoteLocked(n, v, v.t, tt.answer, nil, sent, 1)
		if v.State != tt.want || v.holds(sent) != tt.counts || tt.counts && v.Token != 7 {
			t.Errorf("%v before %v: the vote is %v with token %d, and counts: %v", tt.push.State, tt.answer.State, v.State, v.Token, v.holds(sent))
		}
	}
}
