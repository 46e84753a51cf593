package holdfast

import "github.com/holdfast-go/holdfast/driver"

// Stats are numbers about a client, at one instant. Fields may be added.
type Stats struct {
	Held    int // holds that have not ended, without nested ones
	Waiting int // calls of Lock and the like that wait, without Try calls and nested locks
}

// Stats returns the numbers of the client's holds and waits. It sends nothing,
// and takes time in proportion to these numbers; it does not block. After Close
// all are 0 once the waits have ended.
func (c *Client) Stats() (s Stats) {
	if !c.made() {
		return Stats{}
	}
	for _, q := range c.queues.all() {
		q.mu.Lock()
		for h := q.waiters.first; h != nil; h = h.next {
			if !h.wait.try {
				s.Waiting++
			}
		}
		q.mu.Unlock()
	}
	for t := range c.renewer.heldTickets() {
		t.queue.mu.Lock()
		for h := t.holds.first; h != nil && t.state == driver.Held; h = h.next {
			s.Held++
		}
		t.queue.mu.Unlock()
	}
	return s
}
