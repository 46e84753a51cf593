package sqlline

import (
	"bytes"
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew is [driver.Driver.Renew]. An error of the database is that of the
// tickets it concerns; the others are renewed all the same.
func (s *Lines) Renew(ctx context.Context, db DB, refs []driver.Ref) ([]driver.Place, []Push) {
	b := newBatch(refs)
	quick := b.those(func(i int, r *driver.Ref) bool { return r.State != driver.Waiting && b.alone(i) })
	b.quick(ctx, s, db, &s.t.renew, quick, func(i int, token int64) {
		b.answer(i, driver.Place{State: driver.Held, Token: uint64(token), Lease: refs[i].TTL})
	})
	return b.lines(ctx, s, db, func(l *line, r *driver.Ref) (driver.Place, error) {
		t, err := l.find(r.ID)
		if err != nil || t == nil {
			return driver.Place{State: driver.Gone}, err
		}
		l.prolong(t)
		return l.answer(t, r.TTL)
	})
}

// Leave is [driver.Driver.Leave]. An error of the database is that of the
// tickets it concerns; the others leave all the same.
func (s *Lines) Leave(ctx context.Context, db DB, refs []driver.Ref) ([]driver.Place, []Push) {
	b := newBatch(refs)
	var quick, busy []int
	for _, i := range b.those(func(i int, r *driver.Ref) bool {
		return r.State != driver.Waiting && !r.Unsure && r.Owner == "" && b.alone(i)
	}) {
		// To look for who waits costs a round trip less if there is somebody, and
		// little if there is nobody; but a round trip for each line.
		crowd := s.crowd.now(b.keys[i])
		switch {
		case s.t.handOn != nil && refs[i].Limit == 1 && (crowd || len(refs) == 1 && s.crowd.lately(b.keys[i])):
			busy = append(busy, i)
		case !crowd:
			quick = append(quick, i)
		}
	}
	b.quick(ctx, s, db, &s.t.leave, quick, func(i int, token int64) {
		b.answer(i, driver.Place{State: driver.Held, Token: uint64(token)})
	})
	granted := b.handOn(ctx, s, db, busy)
	places, pushes := b.lines(ctx, s, db, func(l *line, r *driver.Ref) (driver.Place, error) {
		p, err := l.remove(r.ID)
		if err == nil && r.Unsure {
			l.bury(r.ID)
		}
		return p, err
	})
	return places, append(granted, pushes...)
}

// batch is one call of Renew or Leave.
type batch struct {
	refs   []driver.Ref
	keys   [][]byte
	places []driver.Place
	done   []bool
	names  map[string]int // how many refs there are of each line
}

func newBatch(refs []driver.Ref) *batch {
	b := &batch{
		refs:   refs,
		keys:   make([][]byte, len(refs)),
		places: make([]driver.Place, len(refs)),
		done:   make([]bool, len(refs)),
		names:  make(map[string]int, len(refs)),
	}
	for i := range refs {
		b.names[refs[i].Name]++
		b.keys[i] = Key(refs[i].Name)
	}
	return b
}

func (b *batch) answer(i int, p driver.Place) { b.places[i], b.done[i] = p, true }

// alone says whether i is the only ref of its line. Statements that decide
// about many lines name lines in their answers, not tickets.
func (b *batch) alone(i int) bool { return b.names[b.refs[i].Name] == 1 }

// those returns the indices of the refs that f chooses.
func (b *batch) those(f func(int, *driver.Ref) bool) []int {
	var out []int
	for i := range b.refs {
		if f(i, &b.refs[i]) {
			out = append(out, i)
		}
	}
	return out
}

// lines does the rest, line by line in the order of their keys.
func (b *batch) lines(ctx context.Context, s *Lines, db DB, do func(*line, *driver.Ref) (driver.Place, error)) ([]driver.Place, []Push) {
	todo := b.those(func(i int, _ *driver.Ref) bool { return !b.done[i] })
	slices.SortStableFunc(todo, func(i, j int) int { return bytes.Compare(b.keys[i], b.keys[j]) })
	var pushes []Push
	for len(todo) > 0 {
		n := 1
		for n < len(todo) && bytes.Equal(b.keys[todo[n]], b.keys[todo[0]]) {
			n++
		}
		same := todo[:n]
		todo = todo[n:]
		create := false
		for _, i := range same {
			create = create || b.refs[i].Unsure
		}
		told, err := s.visitFor(ctx, db, b.refs[same[0]].Name, b.refs[same[0]].ID, create, func(l *line) error {
			for _, i := range same {
				l.steps = 0
				p, err := do(l, &b.refs[i])
				if err != nil {
					return err
				}
				b.places[i] = p
			}
			return nil
		})
		if err != nil {
			for _, i := range same {
				b.places[i] = driver.Place{Err: err}
			}
		}
		pushes = append(pushes, told...)
	}
	return b.places, pushes
}
