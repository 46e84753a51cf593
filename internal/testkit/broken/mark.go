package broken

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Marker = (*Driver)(nil)

// mark is a mark, and when it was set.
type mark struct {
	driver.Mark
	at time.Duration
}

// markName returns the name under which the store keeps a mark.
func (s *Store) markName(name string) string {
	if s.hasFlaw("marks-folded") {
		return strings.ToLower(name)
	}
	return name
}

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	if err := d.lockStore(ctx); err != nil {
		return driver.Mark{}, err
	}
	s := d.store
	defer s.mu.Unlock()
	name = s.markName(name)
	m := s.marks[name]
	switch {
	case s.hasFlaw("mark-consumed"):
		delete(s.marks, name)
	case s.hasFlaw("mark-forgotten") && s.now()-m.at > 365*24*time.Hour:
		return driver.Mark{}, nil
	case s.hasFlaw("mark-cut"):
		m.Value = m.Value[:min(len(m.Value), 1000)]
	}
	m.Value = bytes.Clone(m.Value)
	return m.Mark, nil
}

// SetMark implements [driver.Marker].
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := d.lockStore(ctx); err != nil {
		return err
	}
	s := d.store
	name = s.markName(name)
	old := s.marks[name]
	stale := m.Token < old.Token
	switch {
	case s.hasFlaw("mark-any"):
		stale = false
	case s.hasFlaw("mark-text"):
		stale = fmt.Sprint(m.Token) < fmt.Sprint(old.Token)
	case s.hasFlaw("mark-again"):
		stale = m.Token <= old.Token
	}
	if stale {
		s.mu.Unlock()
		return driver.ErrStaleMark
	}
	if s.hasFlaw("mark-racy") {
		s.mu.Unlock()
		time.Sleep(time.Duration(10-m.Token%10) * time.Millisecond)
		s.mu.Lock()
	}
	next := mark{driver.Mark{Token: m.Token, Value: bytes.Clone(m.Value)}, s.now()}
	switch {
	case s.hasFlaw("mark-late"):
		d.background.Go(func() {
			time.Sleep(5 * time.Millisecond)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.marks[name] = next
		})
	case s.hasFlaw("mark-stays") && old.Token > 0:
	default:
		s.marks[name] = next
	}
	s.mu.Unlock()
	return nil
}

// forgetMark drops the mark of a queue without tickets, with the flaw that does.
func (s *Store) forgetMark(l *queue) {
	if s.hasFlaw("mark-released") && len(l.tickets) == 0 {
		delete(s.marks, l.name)
	}
}
