package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// viewPatience is how long people wait for a node that is not known to be down.
const viewPatience = time.Second

// each asks all nodes at once and returns the answers of those that gave one,
// by node. It waits for all that are not known to be down, and for a majority;
// without one it returns an error.
func each[A any](ctx context.Context, d *Driver, f func(ctx context.Context, n *node) (A, error)) (map[int]A, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	type answer struct {
		at  int
		a   A
		err error
	}
	answers := make(chan answer, len(d.nodes))
	rest, waits := 0, 0
	need := make([]bool, len(d.nodes))
	for i, n := range d.nodes {
		if !d.begin(func() {
			both, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			defer context.AfterFunc(d.life, cancel)()
			a, err := f(both, n)
			answers <- answer{i, a, err}
		}) {
			return nil, driver.ErrClosed
		}
		rest++
		if need[i] = n.usable(); need[i] {
			waits++
		}
	}
	slow := time.NewTimer(viewPatience)
	defer slow.Stop()
	got := make(map[int]A)
	var errs []error
	for rest > 0 && (waits > 0 || len(got) < d.quorum) {
		select {
		case a := <-answers:
			rest--
			if need[a.at] {
				waits--
			}
			if a.err != nil {
				errs = append(errs, fmt.Errorf("node %d: %w", a.at+1, a.err))
			} else {
				got[a.at] = a.a
			}
		case <-slow.C:
			waits = 0
		case <-ctx.Done():
			return nil, d.ended(ctx)
		case <-d.life.Done():
			return nil, d.ended(ctx)
		}
	}
	if len(got) < d.quorum {
		if ctx.Err() != nil {
			return nil, d.ended(ctx)
		}
		class := driver.Unavailable
		for _, err := range errs {
			if driver.ClassOf(err) == driver.Unknown {
				class = driver.Unknown
			}
		}
		return nil, driver.Errorf(class, "%d of %d nodes answer: %w", len(got), len(d.nodes), errors.Join(errs...))
	}
	return got, nil
}

// Inspect implements [driver.Driver]: it asks all nodes. Who has a majority
// holds; while nobody has, it is the one who holds at its home and goes for the
// majority. Votes without a place in line are not shown.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Line, error) {
	lines, err := each(ctx, d, func(ctx context.Context, n *node) (driver.Line, error) { return n.d.Inspect(ctx, name) })
	if err != nil {
		return driver.Line{}, err
	}
	return d.merge(name, lines), nil
}

// seen is a ticket as the nodes list it.
type seen struct {
	entry  driver.Entry
	held   []driver.Entry // its votes
	waits  bool
	atHome bool // its place is in the line of the first node that answered
	at     int  // in that line
}

func (d *Driver) merge(name string, lines map[int]driver.Line) driver.Line {
	home := -1
	for _, i := range d.homes(name) {
		if _, ok := lines[i]; ok {
			home = i
			break
		}
	}
	all := make(map[string]*seen)
	var order []*seen
	for _, i := range d.homes(name) {
		for at, e := range lines[i].Tickets {
			id := base(e.ID)
			s := all[id]
			if s == nil {
				s = &seen{entry: e, at: at + 1000*len(order)}
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
	holder := slices.ContainsFunc(order, func(s *seen) bool { return len(s.held) >= d.quorum })
	l := driver.Line{Name: name}
	var kept []*seen
	for _, s := range order {
		switch {
		case len(s.held) >= d.quorum:
			s.entry.State = driver.Held
			ends := make([]time.Duration, len(s.held))
			tokens := make([]uint64, len(s.held))
			for i, v := range s.held {
				ends[i], tokens[i] = v.Left, v.Token
			}
			slices.SortFunc(ends, func(a, b time.Duration) int { return cmp.Compare(b, a) })
			s.entry.Left = ends[d.quorum-1]
			s.entry.Token, _ = final(tokens, d.quorum)
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
	slices.SortStableFunc(kept, func(a, b *seen) int {
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

// Names implements [driver.Driver]: what any of the nodes lists, each name once.
// It needs a majority of nodes, one of which knows every name that is held.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		got, err := each(ctx, d, func(ctx context.Context, n *node) ([]string, error) {
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
		told := make(map[string]bool)
		for _, names := range got {
			for _, name := range names {
				if told[name] {
					continue
				}
				told[name] = true
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}

// Break implements [driver.Driver]: it breaks the votes of the ticket at all
// nodes that answer.
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	if ticketID == "" || base(ticketID+strings.Repeat("0", generation)) != ticketID {
		return driver.ErrNoTicket
	}
	got, err := each(ctx, d, func(ctx context.Context, n *node) (broken bool, err error) {
		l, err := n.d.Inspect(ctx, name)
		if err != nil {
			return false, err
		}
		for _, e := range l.Tickets {
			if e.ID == ticketID || base(e.ID) != ticketID {
				continue
			}
			switch err := n.d.Break(ctx, name, e.ID); {
			case err == nil:
				broken = true
			case !errors.Is(err, driver.ErrNoTicket):
				return broken, err
			}
		}
		return broken, nil
	})
	if err != nil {
		return err
	}
	for _, broken := range got {
		if broken {
			return nil
		}
	}
	for i, n := range d.nodes {
		if _, ok := got[i]; !ok && n.usable() { // the ticket may stand in its line
			return driver.Errorf(driver.Unknown, "node %d has not answered, and the others have no such ticket", i+1)
		}
	}
	return driver.ErrNoTicket
}

// Identity implements [driver.Identifier]: the identities of all nodes. It needs
// all of them to have answered once.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.before(ctx); err != nil {
		return "", err
	}
	var all []string
	for i, n := range d.nodes {
		who := n.who.Load()
		if who == nil {
			return "", driver.Errorf(driver.Unavailable, "node %d has not answered yet", i+1)
		}
		all = append(all, *who)
	}
	slices.Sort(all)
	return "redlock:" + strings.Join(all, " "), nil
}

// Check implements [driver.Checker]: it says which nodes take part, and what
// those find out that can examine themselves.
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	type found struct{ fs []driver.Finding }
	got, err := each(ctx, d, func(ctx context.Context, n *node) (found, error) {
		if c, ok := n.d.(driver.Checker); ok {
			fs, err := c.Check(ctx)
			return found{fs}, err
		}
		_, err := n.d.Inspect(ctx, "holdfast")
		return found{}, err
	})
	if err != nil {
		return nil, err
	}
	f := driver.Finding{Topic: "nodes", Detail: fmt.Sprintf("%d of %d take part", len(got), len(d.nodes))}
	if len(got) < len(d.nodes) {
		f.Level = driver.Warning
		f.Detail += fmt.Sprintf("; locks work as long as %d do", d.quorum)
		f.Advice = "bring the others back: each that is missing is one failure less that is survived"
	}
	fs := []driver.Finding{f}
	for i, n := range d.nodes {
		if twin := n.twin.Load(); twin != nil {
			fs = append(fs, driver.Finding{Topic: fmt.Sprintf("node %d", i+1), Level: driver.Problem, Detail: (*twin).Error(), Advice: "give each node a server of its own"})
		}
		for _, one := range got[i].fs {
			one.Topic = fmt.Sprintf("node %d: %s", i+1, one.Topic)
			fs = append(fs, one)
		}
	}
	return fs, nil
}
