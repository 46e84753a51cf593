package redlock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect implements [driver.Driver]: it asks all nodes. The ticket with a
// majority holds. While no ticket has one, the ticket that holds at its home
// and asks for the majority counts as holder. Votes of tickets without a place
// in a queue are not shown. Leave is answered by a majority, so Inspect may show a
// ticket that has left until the last node has removed it too.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	queues, err := each(ctx, d.nodes, func(ctx context.Context, n *node) (driver.Queue, error) { return n.d.Inspect(ctx, name) })
	if err != nil {
		return driver.Queue{}, err
	}
	return d.nodes.merge(name, queues), nil
}

// mergedTicket is a ticket, put together from the nodes' lists.
type mergedTicket struct {
	entry  driver.Entry
	held   []driver.Entry // its votes
	waits  bool
	atHome bool // it is in the queue of the first node that answered
	at     int  // index in that queue
}

func (ns *nodeSet) merge(name string, queues map[int]driver.Queue) driver.Queue {
	home := -1
	for _, i := range ns.homes(name) {
		if _, ok := queues[i]; ok {
			home = i
			break
		}
	}
	all := make(map[string]*mergedTicket)
	var order []*mergedTicket
	for _, i := range ns.homes(name) {
		for at, e := range queues[i].Tickets {
			id := baseID(e.ID)
			s := all[id]
			if s == nil {
				s = &mergedTicket{entry: e, at: at + 1000*len(order)}
				s.entry.ID = id
				all[id] = s
				order = append(order, s)
			}
			if i == home {
				s.atHome, s.at = true, at
			}
			if e.State == driver.Held {
				s.held = append(s.held, e)
			} else {
				s.waits = true
			}
		}
	}
	holder := slices.ContainsFunc(order, func(s *mergedTicket) bool { return len(s.held) >= ns.quorum })
	l := driver.Queue{Name: name}
	var kept []*mergedTicket
	for _, s := range order {
		switch {
		case len(s.held) >= ns.quorum:
			s.entry.State = driver.Held
			ends := make([]time.Duration, len(s.held))
			tokens := make([]uint64, len(s.held))
			for i, v := range s.held {
				ends[i], tokens[i] = v.Left, v.Token
			}
			slices.SortFunc(ends, func(a, b time.Duration) int { return cmp.Compare(b, a) })
			s.entry.Left = ends[ns.quorum-1]
			s.entry.Token, _ = final(tokens, ns.quorum)
			l.Token = max(l.Token, s.entry.Token)
		case s.atHome && len(s.held) > 0 && !holder:
			s.entry.State, s.entry.Token = driver.Held, s.held[0].Token
		case s.waits || s.atHome:
			s.entry.State, s.entry.Token = driver.Waiting, 0
		default:
			continue
		}
		kept = append(kept, s)
	}
	slices.SortStableFunc(kept, func(a, b *mergedTicket) int {
		return cmp.Or(-cmp.Compare(a.entry.State, b.entry.State), cmp.Compare(a.at, b.at))
	})
	for _, s := range kept {
		l.Tickets = append(l.Tickets, s.entry)
	}
	if len(l.Tickets) > 0 {
		l.Limit = 1
	}
	return l
}

// Names implements [driver.Driver]: it yields the names that any of the nodes
// lists, each once. It needs a majority of nodes: every held name is known to
// at least one of them. It is as late as Inspect about what has left.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		got, err := each(ctx, d.nodes, func(ctx context.Context, n *node) ([]string, error) {
			var names []string
			for name, err := range n.d.Names(ctx, prefix) {
				if err != nil {
					return nil, err
				}
				names = append(names, name)
			}
			return names, nil
		})
		if err != nil {
			yield("", err)
			return
		}
		yielded := make(map[string]bool)
		for _, names := range got {
			for _, name := range names {
				if yielded[name] {
					continue
				}
				yielded[name] = true
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}

// Break implements [driver.Driver]: it breaks the votes of the ticket at all
// nodes that answer. It finds the tickets that Inspect shows.
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.nodes.checkOpen(ctx); err != nil {
		return err
	}
	if ticketID == "" || baseID(ticketID+strings.Repeat("0", idDigits)) != ticketID {
		return driver.ErrNoTicket
	}
	votes := func(q driver.Queue) (ids []string) {
		for _, e := range q.Tickets {
			if e.ID != ticketID && baseID(e.ID) == ticketID {
				ids = append(ids, e.ID)
			}
		}
		return ids
	}
	// All nodes are read before one is changed: the client of a ticket that has
	// lost a vote may give the others back before these are counted.
	queues, err := each(ctx, d.nodes, func(ctx context.Context, n *node) (driver.Queue, error) { return n.d.Inspect(ctx, name) })
	if err != nil {
		return err
	}
	type found struct {
		queue  driver.Queue
		broken bool
	}
	got, err := each(ctx, d.nodes, func(ctx context.Context, n *node) (f found, err error) {
		if f.queue, err = n.d.Inspect(ctx, name); err != nil {
			return f, err
		}
		for _, id := range votes(f.queue) {
			switch err := n.d.Break(ctx, name, id); {
			case err == nil:
				f.broken = true
			case !errors.Is(err, driver.ErrNoTicket):
				return f, err
			}
		}
		return f, nil
	})
	if err != nil {
		return err
	}
	broken, seen := false, 0
	for i, f := range got {
		if _, read := queues[i]; !read {
			queues[i] = f.queue
		}
		broken = broken || f.broken
		if f.broken || len(votes(queues[i])) > 0 {
			seen++
		}
	}
	// A minority of votes that Inspect does not show belongs to a ticket that
	// has left: these votes are being given back.
	shown := func(e driver.Entry) bool { return e.ID == ticketID }
	if broken && (seen+len(d.nodes.all)-len(got) >= d.nodes.quorum || slices.ContainsFunc(d.nodes.merge(name, queues).Tickets, shown)) {
		return nil
	}
	for i, n := range d.nodes.all {
		if _, ok := got[i]; !ok && n.usable() { // the ticket may be in its queue
			return driver.Errorf(driver.Unknown, "node %d has not answered, and the others have no such ticket", i+1)
		}
	}
	return driver.ErrNoTicket
}
