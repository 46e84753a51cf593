package wire

import (
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
)

// MaxBatch bounds the tickets of one script, because a script delays all other
// requests while it runs.
const MaxBatch = 256

// Batch is the set of tickets of one script that renews, by their index: first
// those that probably hold a mutex, then the others.
type Batch struct{ Fast, Other []int }

// Len returns the number of tickets.
func (b *Batch) Len() int { return len(b.Fast) + len(b.Other) }

func (b *Batch) order() []int { return append(b.Fast[:len(b.Fast):len(b.Fast)], b.Other...) }

// Batches divides tickets so that each script is about one slot, and not too
// many tickets.
func (q *Requests) Batches(refs []driver.Ref) []*Batch {
	var fast, other []int
	for i := range refs {
		if r := &refs[i]; IsMutex(r.Ticket) && r.State != driver.Waiting {
			fast = append(fast, i)
		} else {
			other = append(other, i)
		}
	}
	return q.BatchesOf(refs, fast, other)
}

// BatchesOf does the same for tickets of either kind.
func (q *Requests) BatchesOf(refs []driver.Ref, fast, other []int) []*Batch {
	var all []*Batch
	open := make(map[int]*Batch) // by slot
	of := func(i int) *Batch {
		slot := 0
		if q.Sharded {
			slot = q.Get(refs[i].Name).Slot
		}
		b := open[slot]
		if b == nil || b.Len() == MaxBatch {
			b = new(Batch)
			open[slot] = b
			all = append(all, b)
		}
		return b
	}
	for _, i := range fast {
		b := of(i)
		b.Fast = append(b.Fast, i)
	}
	for _, i := range other {
		b := of(i)
		b.Other = append(b.Other, i)
	}
	return all
}

// Renewal returns the script that renews a batch.
func (q *Requests) Renewal(refs []driver.Ref, b *Batch) Run {
	keys := make([]string, 0, len(b.Fast)+OwnKeys*len(b.Other)+2)
	args := make([]string, 1, 1+2*b.Len())
	args[0] = strconv.Itoa(len(b.Fast))
	for _, i := range b.Fast {
		keys = append(keys, HoldersKey(q.Prefix, refs[i].Name))
	}
	var l *QueueKeys
	for _, i := range b.Other {
		l = q.Make(refs[i].Name)
		keys = append(keys, l.Keys[:OwnKeys]...)
	}
	if l != nil { // the batch's tickets have these in common
		keys = append(keys, l.All()[OwnKeys:]...)
	}
	for _, i := range b.order() {
		args = append(args, refs[i].ID, q.keep(refs[i].TTL))
	}
	return Run{q.Scripts.Renew, keys, args}
}

// Read records the results of a batch, or the error of its script. It returns
// those of the first kind that hold nothing.
func (b *Batch) Read(refs []driver.Ref, places []driver.Status, reply *Reply, err error) (lost []int) {
	var answers []Reply
	order := b.order()
	if err == nil {
		if answers, err = reply.List(); err != nil || len(answers) != len(order) {
			err = Unreadable("%d answers for %d tickets", len(answers), len(order))
		}
	}
	for n, i := range order {
		if err != nil {
			places[i] = driver.Status{Err: err}
			continue
		}
		if n < len(b.Fast) {
			if token, err := answers[n].Int(); err == nil && token == 0 {
				lost = append(lost, i)
				continue
			}
		}
		p, err := ReadStatus(&answers[n], refs[i].Ticket)
		if err != nil {
			p = driver.Status{Err: err}
		}
		places[i] = p
	}
	return lost
}
